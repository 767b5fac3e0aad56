//! The Savina benchmarks: plain actix, fiber in one process and across processes, and other actor
//! frameworks in the same run.
//!
//! The programs are in `benches/peers/savina`, with the Rust frameworks, which are built when they
//! are first needed.

#[path = "../savina/src/programs/mod.rs"]
mod programs;

use std::cell::{OnceCell, RefCell};
use std::process;
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use actix::prelude::*;
use anyhow::{Context as _, ensure};
use fiber::{AsyncManager, RemoteAddr};
use programs::{Behaviour, Id, Leaf, Note, Out, PROGRAMS, Program, START};
use tokio::sync::oneshot;

use crate::libraries;
use crate::measure::{median, rate};
use crate::table::{Figure, Row, Table};

/// The argument of a process that measures plain actix, before a program's name.
const WITH_ACTIX: &str = "savina-actix";
const REPEATS: usize = 3;
/// How often plain actix and fiber take turns.
const TURNS: usize = 5;
/// Across processes and by remote addresses, programs have this part of their sizes.
const PART: u64 = 20;
/// The program that is about one process.
const IN_ONE: &str = "fork-join creation";
const IN_ONE_PROCESS: [&str; 3] = ["ractor", "kameo", "erlang"];
/// The framework that has the programs with one message at a time alone, in smaller parts.
const SLOW: &str = "kameo_remote";
const ONE_BY_ONE: [&str; 2] = ["ping-pong", "thread ring"];
/// Frameworks across processes. The ratio is to the best of them.
const ACROSS: [&str; 3] = ["ractor_cluster", "kameo_remote", "erlang_nodes"];

/// An actor of a program.
struct Host {
    behaviour: Box<dyn Behaviour>,
    stage: Stage,
    /// Whether it ends after its first message.
    is_leaf: bool,
}

impl Actor for Host {
    type Context = Context<Self>;
}

#[fiber::message]
struct Tell(Note);

#[fiber::handlers]
impl Host {
    fn tell(&mut self, Tell(note): Tell, context: &mut Context<Self>) {
        self.behaviour.receive(note, &mut self.stage);
        if self.is_leaf {
            context.stop();
        }
    }
}

/// The addresses of all actors of a program.
enum Addresses {
    Local(Vec<Addr<Host>>),
    Remote(Vec<RemoteAddr<Host>>),
}

/// A program, as the actors of one process see it. They live as long as the process.
#[derive(Clone, Default)]
struct Stage {
    addresses: Rc<OnceCell<Addresses>>,
    end: Rc<RefCell<Option<oneshot::Sender<()>>>>,
}

impl Stage {
    /// Starts actors.
    fn start(&self, program: &Program, ids: impl Iterator<Item = Id>) -> Vec<Addr<Host>> {
        let host = |id| Host { behaviour: program.actor(id), stage: self.clone(), is_leaf: false };
        ids.map(|id| host(id).start()).collect()
    }

    fn connect(&self, addresses: Addresses) {
        assert!(self.addresses.set(addresses).is_ok(), "a stage is for one run");
    }

    /// Runs the program, whose first actor is in this process.
    async fn run(mut self) -> Duration {
        let (end, ended) = oneshot::channel();
        *self.end.borrow_mut() = Some(end);
        let start = Instant::now();
        self.tell(0, START);
        ended.await.expect("the first actor ends the program");
        start.elapsed()
    }
}

impl Out for Stage {
    fn tell(&mut self, to: Id, note: Note) {
        match self.addresses.get().expect("all actors have started") {
            Addresses::Local(actors) => actors[to as usize].do_send(Tell(note)),
            Addresses::Remote(actors) => actors[to as usize].do_send(Tell(note)),
        }
    }

    fn create(&mut self, note: Note) {
        let leaf = Host { behaviour: Box::new(Leaf), stage: self.clone(), is_leaf: true };
        leaf.start().do_send(Tell(note));
    }

    fn end(&mut self) {
        if let Some(end) = self.end.borrow_mut().take() {
            let _ = end.send(());
        }
    }
}

/// A process of fiber with actors of a program.
#[derive(Default)]
struct Village {
    stage: Stage,
}

impl Actor for Village {
    type Context = Context<Self>;
}

/// Starts actors, for other processes too.
#[fiber::message(Vec<RemoteAddr<Host>>)]
struct Settle(Program, Vec<Id>);

#[fiber::message]
struct Connect(Vec<RemoteAddr<Host>>);

#[fiber::handlers]
impl Village {
    fn settle(&mut self, settle: Settle) -> Vec<RemoteAddr<Host>> {
        let Settle(program, ids) = settle;
        self.stage = Stage::default();
        let actors = self.stage.start(&program, ids.into_iter()).into_iter();
        let export = |actor| RemoteAddr::export(actor).expect("this process is a node");
        actors.map(export).collect()
    }

    fn connect(&mut self, Connect(actors): Connect) {
        self.stage.connect(Addresses::Remote(actors));
    }
}

/// Runs the program that has settled, whose first actor is here.
#[fiber::message(Duration)]
struct Run;

impl Handler<Run> for Village {
    type Result = ResponseFuture<Duration>;

    fn handle(&mut self, _: Run, _: &mut Context<Self>) -> Self::Result {
        Box::pin(self.stage.clone().run())
    }
}

/// Runs a program with actors that only this process knows.
#[fiber::message(Duration)]
struct RunHere(Program);

impl Handler<RunHere> for Village {
    type Result = ResponseFuture<Duration>;

    fn handle(&mut self, RunHere(program): RunHere, _: &mut Context<Self>) -> Self::Result {
        Box::pin(run_here(program))
    }
}

async fn run_here(program: Program) -> Duration {
    let stage = Stage::default();
    stage.connect(Addresses::Local(stage.start(&program, 0..program.actors())));
    stage.run().await
}

/// Measures plain actix and ends, if this process was started for that: it is none of fiber's.
pub(super) fn be_plain_if_asked() {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() != Some(WITH_ACTIX) {
        return;
    }
    let program = arguments.next().and_then(|name| Program::named(&name, 1));
    let program = program.expect("the suite names a program");
    // The allocator of a program with one thread takes no locks, and no program stays like that.
    thread::spawn(thread::park);
    let time = System::new().block_on(async {
        run_here(program.clone()).await;
        run_here(program).await
    });
    println!("{}", time.as_secs_f64());
    process::exit(0);
}

/// Runs a program in a new process without fiber.
fn plain_actix(program: &Program) -> anyhow::Result<Duration> {
    let mut plain = process::Command::new(std::env::current_exe()?);
    let output = plain.args([WITH_ACTIX, &program.name]).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "plain actix failed ({}): {}", output.status, said.trim());
    Ok(Duration::from_secs_f64(String::from_utf8(output.stdout)?.trim().parse()?))
}

/// Runs a program in a new process of fiber, by addresses of actix.
fn local(program: &Program) -> anyhow::Result<Duration> {
    let village = AsyncManager::start(Village::default, ()).wait()?;
    let run = || village.send(RunHere(program.clone())).wait();
    run()?;
    Ok(run()?)
}

/// Returns the medians of plain actix and of fiber, which take turns: they differ by less than what
/// else the machine does.
fn plain_and_local(program: &Program) -> anyhow::Result<(Duration, Duration)> {
    let (mut plain, mut own) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        plain.push(plain_actix(program)?);
        own.push(local(program)?);
    }
    eprintln!("  {}: actix {plain:.1?}, fiber {own:.1?}", program.name);
    Ok((median(plain), median(own)))
}

/// Runs a program several times in new processes, by addresses of fiber.
fn remote(program: &Program, processes: usize) -> anyhow::Result<Duration> {
    let villages: Vec<AsyncManager<Village>> = (0..processes)
        .map(|_| AsyncManager::start(Village::default, ()).wait())
        .collect::<fiber::Result<_>>()?;
    let run = || -> anyhow::Result<Duration> {
        let mut actors = vec![None; program.actors() as usize];
        for (process, village) in villages.iter().enumerate() {
            let is_here = |id: &Id| processes == 1 || program.place(*id) as usize == process;
            let ids: Vec<Id> = (0..program.actors()).filter(is_here).collect();
            let here = village.send(Settle(program.clone(), ids.clone())).wait()?;
            ids.iter().zip(here).for_each(|(id, addr)| actors[*id as usize] = Some(addr));
        }
        let actors: Vec<_> = actors.into_iter().flatten().collect();
        for village in &villages {
            village.send(Connect(actors.clone())).wait()?;
        }
        Ok(villages[0].send(Run).wait()?)
    };
    run()?;
    Ok(median((0..REPEATS).map(|_| run()).collect::<anyhow::Result<_>>()?))
}

/// Adds the figures of frameworks, and notes that say why there is none. Returns the name of the
/// fastest one too.
fn beside(
    mut row: Row,
    table: &mut Table,
    frameworks: &[&'static str],
    program: &Program,
    part: u64,
) -> (Row, Option<&'static str>) {
    let mut best: Option<(f64, &'static str)> = None;
    for framework in frameworks.iter().filter(|framework| libraries::is_wanted(framework)) {
        // A remote message of kameo has a stream of its own, so floods of them run into its time
        // limits.
        let is_slow = *framework == SLOW;
        if is_slow && !ONE_BY_ONE.contains(&&*program.name) {
            continue;
        }
        let part = if is_slow { part * 10 } else { part };
        let measured = libraries::run_framework(framework, &program.name, part)
            .and_then(|result| result.rate.map(|rate| (result, rate)).context("it has no rate"));
        match measured {
            Ok((result, rate)) => {
                eprintln!("  {framework}: {:.3} s", result.seconds);
                libraries::note_version(table, &result.library, &result.version);
                row = row.beside(*framework, Figure::Rate(rate));
                best = best.filter(|(other, _)| *other > rate).or(Some((rate, framework)));
            }
            Err(error) => {
                eprintln!("  {framework}: {error:#}");
                row = row.note(format!("{framework}: {error:#}"));
            }
        }
    }
    (row, best.map(|(_, framework)| framework))
}

pub(super) fn savina(table: &mut Table) -> anyhow::Result<()> {
    for (name, unit, _) in PROGRAMS {
        let whole = Program::named(name, 1).context("it is one of them")?;
        let figure = |program: &Program, time| Figure::Rate(rate(program.count() as usize, time));
        let (actix, time) = plain_and_local(&whole)?;
        let row = Row::new(format!("{name} in one process: {unit}"), figure(&whole, time))
            .beside("actix", figure(&whole, actix))
            .at_least(0.95, "actix");
        let part = Program::named(name, PART).context("it is one of them")?;
        let by_address = remote(&part, 1)?;
        eprintln!("  {name}: by `RemoteAddr` {by_address:.1?} for a part");
        let row = row.beside("RemoteAddr", figure(&part, by_address));
        let (row, _) = beside(row, table, &IN_ONE_PROCESS, &whole, 1);
        table.push(row);
    }
    for (name, unit, _) in PROGRAMS.into_iter().filter(|(name, ..)| *name != IN_ONE) {
        let program = Program::named(name, PART).context("it is one of them")?;
        let time = remote(&program, 2)?;
        eprintln!("  {name}: {time:.1?} across processes");
        let figure = Figure::Rate(rate(program.count() as usize, time));
        let row = Row::new(format!("{name} in two processes: {unit}"), figure);
        let (row, best) = beside(row, table, &ACROSS, &program, PART);
        table.push(match best {
            Some(best) => row.at_least(3.0, best),
            None => row,
        });
    }
    Ok(())
}
