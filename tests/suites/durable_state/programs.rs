//! Programs that tests start, kill and start again.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use fiber::Journal;
use fiber_journal::Reader;
use rand::{Rng, SeedableRng, rngs::SmallRng};
use tempfile::TempDir;

/// The variable with the name of the program that a process runs.
const PROGRAM: &str = "DURABLE_PROGRAM";
/// The variable with the folder that all runs of a program share.
const FOLDER: &str = "DURABLE_FOLDER";

/// The interval of checks whether a program has come to the place where it is killed.
const LOOK: Duration = Duration::from_millis(1);

/// Runs the program whose name is in the environment.
pub(crate) fn run_named() {
    let Ok(name) = std::env::var(PROGRAM) else { return };
    let folder = Folder(std::env::var_os(FOLDER).expect("the test sets it").into());
    let programs =
        [super::actors::PROGRAMS, super::rings::PROGRAMS, super::queues::PROGRAMS].concat();
    let program = programs.iter().find(|(program, _)| *program == name);
    program.expect("the test names a program").1(&folder);
}

/// The names of programs and their functions.
pub(crate) type Programs = &'static [(&'static str, fn(&Folder))];

/// The folder that all runs of a program share.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn journal(&self) -> Journal {
        Journal::at(self.0.join("journal"))
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Appends a line to a file. It is there although the program is killed.
    pub(crate) fn note(&self, file: &str, line: impl std::fmt::Display) {
        note(&self.file(file), line);
    }

    /// Appends a number to a file, and returns it.
    pub(crate) fn noted(&self, file: &str, number: u64) -> u64 {
        self.note(file, number);
        number
    }

    /// Returns what the journal has as the state of actors, rings and queues.
    pub(crate) fn recorded(&self) -> Vec<Vec<u8>> {
        let mut recorded = Vec::new();
        let read = Reader::open(&self.file("journal")).and_then(|reader| {
            reader.slots(|_, (_, bytes, _)| {
                recorded.push(bytes.to_vec());
                Ok(())
            })
        });
        // A journal that the program has not written yet can't be read.
        read.map(|()| recorded).unwrap_or_default()
    }

    pub(crate) fn numbers(&self, file: &str) -> Vec<u64> {
        self.lines(file).iter().map(|line| line.parse().unwrap()).collect()
    }

    pub(crate) fn lines(&self, file: &str) -> Vec<String> {
        let text = fs::read_to_string(self.file(file)).unwrap_or_default();
        text.lines().map(str::to_string).collect()
    }
}

/// Appends a line to a file, with one system call.
pub(crate) fn note(file: &Path, line: impl std::fmt::Display) {
    let mut file = OpenOptions::new().create(true).append(true).open(file).unwrap();
    file.write_all(format!("{line}\n").as_bytes()).unwrap();
}

/// A program that is started several times.
pub(crate) struct Runs {
    program: &'static str,
    folder: TempDir,
}

impl Runs {
    pub(crate) fn of(program: &'static str) -> Runs {
        Runs { program, folder: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn folder(&self) -> Folder {
        Folder(self.folder.path().to_path_buf())
    }

    fn command(&self) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "durable_state::program", "--nocapture"]);
        command.env(PROGRAM, self.program).env(FOLDER, self.folder.path());
        command.stdout(Stdio::null());
        command
    }

    /// Starts the program, and waits for its end.
    pub(crate) fn run(&self) -> ExitStatus {
        self.command().status().unwrap()
    }

    /// Runs the program to its end, which must be a good one.
    pub(crate) fn succeed(&self) {
        assert!(self.run().success(), "`{}` failed", self.program);
    }

    /// Starts the program with files of at most 512 KiB, as if the disk was full then.
    pub(crate) fn run_on_a_small_disk(&self) -> ExitStatus {
        let program = self.command();
        let mut limited = Command::new("bash");
        // The signal would end the program. Ignored, it lets the write fail.
        let script = "trap '' XFSZ; ulimit -f 512; exec \"$@\"";
        limited.args(["-c", script, "bash"]).arg(program.get_program()).args(program.get_args());
        limited.envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
        limited.stdout(Stdio::null()).status().unwrap()
    }

    /// Starts the program several times, and each time kills it (SIGKILL) at a random moment after
    /// it has added some lines to a file, at most `lines`. Then runs it to its end, which must be a
    /// good one. On a busy machine it may come to its end before it was killed so often.
    pub(crate) fn survive_kills(&self, times: usize, file: &str, lines: usize) {
        let mut random = SmallRng::seed_from_u64(17);
        for _ in 0..times {
            let reached = self.folder().lines(file).len() + random.random_range(1..=lines);
            if !self.kill_when(|folder| folder.lines(file).len() >= reached) {
                break;
            }
        }
        self.succeed();
    }

    /// Starts the program, and kills it (SIGKILL) when `reached` returns `true`. Returns `false` if
    /// it came to a good end before.
    pub(crate) fn kill_when(&self, reached: impl Fn(&Folder) -> bool) -> bool {
        let (mut program, folder) = (self.command().spawn().unwrap(), self.folder());
        while !reached(&folder) {
            if let Some(status) = program.try_wait().unwrap() {
                assert!(status.success(), "`{}` failed", self.program);
                return false;
            }
            std::thread::sleep(LOOK);
        }
        kill(&mut program);
        true
    }
}

fn kill(program: &mut Child) {
    program.kill().unwrap();
    program.wait().unwrap();
}
