//! Machines that are all this one. That called `off` starts nothing.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use fiber::backend::{
    Backend, BackendEntry, Job, JobSpec, ListenAddress, Local, LocalBoxFuture, Machine, Room,
};
use fiber::error::Result;
use fiber::stats::ProcessState;
use fiber::{Meta, Pool};
use fiber_test_support::wait::wait_for;
use fiber_test_support::{scenario, tasks};
use tracing_subscriber::filter::LevelFilter;

const SLOT: Room = Room { cpu: 1.0, memory: None, gpu: 0 };

fiber::backend::register!(BackendEntry::new("slots", |config| {
    let rooms = [("off", Some(SLOT)), ("n1", Some(SLOT))];
    Ok(Arc::new(Slots { name: "slots", local: Local::new(config), rooms }))
}));

// Only the machines know what they have: the first its GPUs, the second also its cores.
fiber::backend::register!(BackendEntry::new("unmeasured", |config| {
    let rooms = [("n1", Some(Room { gpu: u32::MAX, ..SLOT })), ("n2", None)];
    Ok(Arc::new(Slots { name: "unmeasured", local: Local::new(config), rooms }))
}));

#[derive(Debug)]
struct Slots {
    name: &'static str,
    local: Local,
    rooms: [(&'static str, Option<Room>); 2],
}

impl Backend for Slots {
    fn name(&self) -> &'static str {
        self.name
    }

    fn listen_address(&self) -> LocalBoxFuture<'_, Result<ListenAddress>> {
        self.local.listen_address()
    }

    fn create(&self, spec: JobSpec) -> LocalBoxFuture<'_, Result<Arc<dyn Job>>> {
        Box::pin(async move {
            let is_off = spec.machine.as_deref() == Some("off");
            let program = if is_off { "false".into() } else { Local::program() };
            self.local.launch(&spec, Command::new(program))
        })
    }

    fn machines(&self) -> LocalBoxFuture<'_, Result<Option<Vec<Machine>>>> {
        let machines = self.rooms.map(|(name, room)| Machine { name: name.into(), room });
        Box::pin(async move { Ok(Some(Vec::from(machines))) })
    }

    fn sweep(&self) -> LocalBoxFuture<'_, Result<Vec<String>>> {
        Box::pin(async { Ok(Vec::new()) })
    }
}

/// Prints what a process waits for, once it does.
fn print_wait(name: &str) {
    let why = wait_for("a reason to wait", || {
        let all = fiber::stats().expect("the program is initialized").report.processes;
        match all.into_iter().find(|process| process.name == name).map(|process| process.state) {
            Some(ProcessState::Waiting(why)) => Ok(why),
            other => Err(other),
        }
    });
    println!("{name}: {why}");
}

/// Two pools share the one slot: the first works with one of two workers, and the second waits until
/// standard input has a line.
#[scenario("one slot")]
fn one_slot() {
    fiber::init_with(|config| config.backend = "slots".into());
    let pool = |name: &str, workers| Pool::builder().name(name).processes(workers).build().unwrap();
    let first = pool("first", 2);
    first.wait_until_ready().wait().unwrap();
    let second = pool("second", 1);
    let result = second.apply(|| 7, ());
    print_wait("second/worker-1");
    print_wait("host-off");
    super::read_line();
    first.stop().wait().unwrap();
    println!("second: {}", result.wait().unwrap());
}

/// Has one worker more than slots, and prints its log until standard input has a line.
#[scenario("one slot, with a log")]
fn one_slot_with_a_log() {
    fiber::init_with(|config| config.backend = "slots".into());
    let log = tracing_subscriber::fmt().with_max_level(LevelFilter::DEBUG);
    log.with_writer(std::io::stdout).with_ansi(false).init();
    let pool = Pool::builder().processes(2).build().unwrap();
    pool.apply(|| (), ()).wait().unwrap();
    super::read_line();
    pool.stop().wait().unwrap();
}

/// Prints why a pool fails whose workers ask for a GPU, which no machine has.
#[scenario("no GPUs")]
fn no_gpus() {
    fiber::init_with(|config| {
        config.backend = "unmeasured".into();
        config.gpus = Some(Vec::new());
        config.schedule_timeout = Duration::from_secs(3600);
    });
    tasks::too_large(Meta::new().gpu(1));
}
