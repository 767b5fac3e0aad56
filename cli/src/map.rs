//! `fiber map`: runs a command for each item, on a pool of workers.
//!
//! The pool is an ordinary one, whose task function runs a command. Its workers are this program,
//! started again.

mod items;
mod pending;
mod report;
mod task;
mod template;
mod worker;

use std::ffi::OsStr;
use std::io::{self, IsTerminal, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{anyhow, bail};
use fiber::error::{Error, FailureKind};
use fiber::{Config, Journal, Meta, Pool};
use fiber_core::Patient;

use self::items::{Input, Items, Source};
use self::pending::{Commands, Pending};
use self::report::{Directory, Ended, Report, quoted, say_failure};
use self::task::{End, Outcome, Settings};
use self::template::Template;
use crate::run::READER_GONE;
use crate::terminal::{has_reader, of_output};
use crate::{ExitError, args, program};

/// The exit code if no command was run, or not all items could be read.
pub(crate) const REFUSED: u8 = 125;
/// The exit code if more commands have failed than an exit code can tell. Up to 100 it is their
/// number, as with GNU parallel.
const MANY_FAILED: u8 = 101;
/// Separates the command from its items.
const SEPARATOR: &[u8] = b":::";

pub(crate) fn map(args: args::Map) -> anyhow::Result<ExitCode> {
    execute(args).map_err(|error| ExitError::or(REFUSED, error))
}

fn execute(mut args: args::Map) -> anyhow::Result<ExitCode> {
    let words = std::mem::take(&mut args.command);
    let words: Vec<Vec<u8>> = words.into_iter().map(OsStringExt::into_vec).collect();
    let mut parts = words.split(|word| word == SEPARATOR);
    let command = parts.next().unwrap_or_default();
    let arguments = parts.next();
    if parts.next().is_some() {
        bail!("there is more than one `:::`: give all items after one, or use `--csv`");
    }
    if command.is_empty() {
        bail!("there is no command: give one, as in `fiber map -- echo {{}} ::: a b c`");
    }
    let source = source(&args, arguments)?;
    let mut items = source.open()?;
    let template = Template::parse(command, items.columns())?;
    items.wait_for_first()?;
    if args.dry_run {
        return dry_run(items, &template);
    }
    let own_program = template.program();
    let settings = configure(&args, own_program.as_deref())?;
    let report = match &args.output_dir {
        Some(path) => Report::Directory(Directory::create(path, args.journal.as_deref())?),
        None if args.json => Report::Json(items.columns().map(<[String]>::to_vec)),
        None => Report::Text,
    };
    let pool = pool(&args, own_program.as_deref(), settings)?;
    let pending = Pending::default();
    let commands = Commands::new(items, template, pending.clone());
    let results = start(&args, &pool, commands);
    let run = Run { pending, report, has_own_program: own_program.is_some(), done: 0, failed: 0 };
    let code = run.finish(results);
    pool.kill();
    pool.join().wait()?;
    code
}

fn source(args: &args::Map, arguments: Option<&[Vec<u8>]>) -> anyhow::Result<Source> {
    let option = [("--input", &args.input), ("--csv", &args.csv)];
    let option = option.into_iter().find(|(_, path)| path.is_some());
    match (arguments, option, &args.csv, &args.input) {
        (Some(_), Some((option, _)), ..) => {
            bail!("there are items after `:::` and in {option}: leave one of them out")
        }
        (Some([]), ..) => bail!("there are no items after `:::`"),
        (Some(items), ..) => Ok(Source::Arguments(items.to_vec())),
        (None, _, Some(path), _) => Ok(Source::Csv(Input::of(path))),
        (None, _, None, path) => {
            let input = path.as_deref().map_or(Input::Standard, Input::of);
            if matches!(input, Input::Standard) && io::stdin().is_terminal() {
                tell!("fiber map: the items are read from this terminal; Ctrl-D ends them");
            }
            Ok(Source::Lines(input, if args.null { 0 } else { b'\n' }))
        }
    }
}

/// Prints the commands, as a shell would read them.
fn dry_run(items: Items, template: &Template) -> anyhow::Result<ExitCode> {
    let mut out = io::BufWriter::new(Patient(io::stdout().lock()));
    for item in items {
        let mut line = quoted(&template.expand(&item?));
        line.push(b'\n');
        if !has_reader(out.write_all(&line).map_err(of_output))? {
            return Ok(ExitCode::from(READER_GONE));
        }
    }
    let is_read = has_reader(out.flush().map_err(of_output))?;
    Ok(if is_read { ExitCode::SUCCESS } else { ExitCode::from(READER_GONE) })
}

/// Sets the configuration of this session, and returns the settings of its workers.
fn configure(args: &args::Map, own_program: Option<&[u8]>) -> anyhow::Result<Settings> {
    let found = own_program.map(|name| program::find(OsStr::from_bytes(name)));
    let path = match &found {
        Some(Ok(path)) => Some(std::path::absolute(path)?),
        _ => None,
    };
    let (cluster, image, path_for_image) = (args.cluster.clone(), args.image.clone(), path.clone());
    Config::set(move |config| {
        cluster.apply(config);
        if image.is_some() {
            config.image.clone_from(&image);
        }
        let bundled = path_for_image.iter().filter_map(|path| path.to_str());
        config.bundle.extend(bundled.map(str::to_string));
    });
    let config = Config::load()?;
    args.cluster.check(&config)?;
    // Another image has other programs than this machine.
    let program = match (config.image, found) {
        (None, Some(Err(error))) => bail!(error),
        (None, _) => path.map(PathBuf::into_os_string).map(OsStringExt::into_vec),
        (Some(_), _) => None,
    };
    Ok(Settings {
        program,
        timeout: args.timeout,
        retries: args.retries,
        max_output: args.max_output.as_u64(),
    })
}

fn pool(args: &args::Map, own_program: Option<&[u8]>, settings: Settings) -> anyhow::Result<Pool> {
    let name = own_program.and_then(|path| Path::new(OsStr::from_bytes(path)).file_name());
    let name = name.map_or("map".into(), |name| name.to_string_lossy());
    let meta = Meta::new();
    let meta = args.cpu.map_or(meta, |cores| meta.cpu(cores));
    let meta = args.memory.map_or(meta, |size| meta.memory(size.as_u64()));
    let meta = args.gpu.map_or(meta, |count| meta.gpu(count));
    let pool = Pool::builder().name(name).meta(meta).try_initializer(worker::prepare, settings);
    let pool = match args.processes {
        Some(count) => pool.processes(count as usize),
        None => pool,
    };
    let pool = pool.build()?;
    Ok(match args.journal.as_deref() {
        Some(path) if path.contains('/') => pool.durable(Journal::at(path)),
        Some(name) => pool.durable(Journal::new(name)),
        None => pool,
    })
}

type Results = Box<dyn Iterator<Item = fiber::Result<Outcome>>>;

fn start(args: &args::Map, pool: &Pool, commands: Commands) -> Results {
    macro_rules! results {
        ($call:expr) => {
            match args.no_progress {
                true => Box::new($call.wait()),
                false => Box::new($call.progress(pool.name()).wait()),
            }
        };
    }
    match args.unordered {
        true => results!(pool.try_imap_unordered(worker::run, commands)),
        false => results!(pool.try_imap(worker::run, commands)),
    }
}

/// A map that runs.
struct Run {
    pending: Pending,
    report: Report,
    /// Whether the program is the same for all items.
    has_own_program: bool,
    done: u64,
    failed: u64,
}

impl Run {
    fn finish(mut self, results: Results) -> anyhow::Result<ExitCode> {
        for result in results {
            let (item, command, ended) = self.identify(result)?;
            if let Ended::Outcome(Outcome {
                end: End::NotExecutable { exit_code, problem }, ..
            }) = &ended
                && self.has_own_program
            {
                bail!(ExitError { code: *exit_code, problem: problem.clone() });
            }
            self.done += 1;
            if !has_reader(self.report.add(&item, &command, &ended))? {
                return Ok(ExitCode::from(READER_GONE));
            }
            if !ended.is_success() {
                self.failed += 1;
                say_failure(self.failed, &item, &command, &ended);
            }
        }
        if self.failed > 0 {
            tell!("fiber map: {} of {} commands failed", self.failed, self.done);
        }
        match self.pending.take_error() {
            Some(error) => Err(error),
            None => {
                let failed = u8::try_from(self.failed).unwrap_or(u8::MAX);
                Ok(ExitCode::from(failed.min(MANY_FAILED)))
            }
        }
    }

    /// Returns the item to which a result belongs, its command and its end.
    fn identify(
        &self,
        result: fiber::Result<Outcome>,
    ) -> anyhow::Result<(items::Item, Vec<Vec<u8>>, Ended)> {
        let with_outcome = |outcome: Outcome| {
            let item = self.pending.take(&outcome.command);
            (item.map(|item| (item, outcome.command.clone())), Ended::Outcome(outcome))
        };
        let lost =
            |index: u64, problem| (self.pending.take_number(index + 1), Ended::Lost(problem));
        let (taken, ended) = match result {
            Ok(outcome) => with_outcome(outcome),
            Err(Error::Task { index, failure, .. }) => {
                let outcome = match failure.kind {
                    FailureKind::Returned => Outcome::of_failure(&failure.message),
                    _ => None,
                };
                outcome.map_or_else(|| lost(index, failure.to_string()), with_outcome)
            }
            Err(
                Error::WorkerDied { index, deaths, exit, .. }
                | Error::TaskTimedOut { index, deaths, exit, .. },
            ) => {
                let problem =
                    format!("{deaths} workers died while they ran it; the last one {exit}");
                lost(index, problem)
            }
            Err(error) => return Err(error.into()),
        };
        let (item, command) = taken.ok_or_else(|| anyhow!("an outcome belongs to no item"))?;
        Ok((item, command, ended))
    }
}
