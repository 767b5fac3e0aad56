//! Starts a program under test, talks to it, and checks its end.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tempfile::TempDir;

use crate::wait::{LONG, wait_for};

/// The variable with the name of the scenario that a program runs.
pub const SCENARIO: &str = "SCENARIO";
/// The variable that marks all processes of one program.
const MARK: &str = "SCENARIO_MARK";
/// The interval of checks whether something has happened.
const LOOK: Duration = Duration::from_millis(1);
/// The interval of checks of all processes of the machine.
const PROCESSES_LOOK: Duration = Duration::from_millis(10);
/// Time limit for processes to end after their program.
const OUTLIVE: Duration = Duration::from_secs(60);

/// Configures and starts a program.
#[derive(Debug)]
pub struct Setup {
    command: Command,
    mark: String,
    places: Arc<Places>,
    outlive: Duration,
}

/// The working directory of a program, and the temporary one, where it could leave files.
#[derive(Debug)]
struct Places {
    work: TempDir,
    temporary: TempDir,
}

/// A running program, which is killed when this is dropped.
pub struct Program {
    child: Child,
    out: Lines,
    errors: Lines,
    mark: String,
    places: Arc<Places>,
    outlive: Duration,
}

/// The end of a program.
#[derive(Debug)]
pub struct ProgramOutput {
    status: ExitStatus,
    places: Arc<Places>,
    /// Its standard output, except for lines that the test has removed.
    pub out: String,
    /// Its standard error, except for lines that the test has removed.
    pub errors: String,
}

/// Copies the executable of these tests to a file, which other tests can't keep open for writing: a
/// file that this process writes is inherited by programs that other threads start meanwhile, and
/// can't be executed until they close it.
pub fn copy_executable(to: &Path) {
    let own = std::env::current_exe().expect("this binary is somewhere");
    let copied = Command::new("cp").arg(own).arg(to).status();
    assert!(copied.expect("cp can be started").success());
}

/// Runs a command that must fail with this code and an error. Its errors have these words.
#[track_caller]
pub fn fails(setup: Setup, code: i32, words: &[&str]) {
    let errors = setup.run().code(code).errors;
    assert!(errors.lines().any(|line| line.starts_with("error: ")), "{errors}");
    for word in words {
        assert!(errors.contains(word), "`{word}` is missing in: {errors}");
    }
}

impl Setup {
    /// Configures the program of a scenario, in an empty directory, with no configuration but the
    /// link of this test run.
    pub fn new(scenario: &str) -> Setup {
        Setup::with_executable(
            scenario,
            &std::env::current_exe().expect("this binary is somewhere"),
        )
    }

    /// Works as [`new`](Setup::new), with another executable.
    pub fn with_executable(scenario: &str, executable: &Path) -> Setup {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let mark =
            format!("program-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let directory = || TempDir::new().expect("a directory can be created");
        let places = Arc::new(Places { work: directory(), temporary: directory() });
        let mut command = Command::new("env");
        // A test run in the background of a script, or under `nohup`, inherits ignored signals.
        command.arg("--default-signal=INT,QUIT,TERM,HUP").arg(executable);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("FIBER_") && name != "FIBER_LINK" {
                command.env_remove(name);
            }
        }
        command
            .env(SCENARIO, scenario)
            .env(MARK, &mark)
            .env("TMPDIR", places.temporary.path())
            .env_remove("RUST_BACKTRACE")
            .current_dir(places.work.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // As shells do.
            .process_group(0);
        Setup { command, mark, places, outlive: OUTLIVE }
    }

    /// Sets an environment variable.
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Setup {
        self.command.env(name, value);
        self
    }

    /// Adds arguments.
    pub fn args(mut self, arguments: &[&str]) -> Setup {
        self.command.args(arguments);
        self
    }

    /// Returns the working directory.
    pub fn directory(&self) -> &Path {
        self.places.work.path()
    }

    /// Writes a file into the working directory.
    pub fn file(self, name: &str, text: &str) -> Setup {
        std::fs::write(self.places.work.path().join(name), text)
            .expect("the directory can be written to");
        self
    }

    /// Sets how long its processes may outlive it.
    pub fn outlive(mut self, by: Duration) -> Setup {
        self.outlive = by;
        self
    }

    /// Runs it as another user.
    pub fn user(mut self, id: u32) -> Setup {
        self.command.uid(id).gid(id);
        for place in [self.places.work.path(), self.places.temporary.path()] {
            std::os::unix::fs::chown(place, Some(id), Some(id))
                .expect("this process may change the owner");
        }
        self
    }

    /// Runs it in a terminal of its own. Its standard error then comes with its standard output.
    pub fn in_a_terminal(mut self) -> Setup {
        let mut script = Command::new("script");
        let words = [self.command.get_program()].into_iter().chain(self.command.get_args());
        let quoted =
            words.map(|word| format!("'{}'", word.to_string_lossy().replace('\'', r"'\''")));
        let line = quoted.collect::<Vec<_>>().join(" ");
        script.args(["--quiet", "--return", "--flush", "--command", &line, "/dev/null"]);
        for (name, value) in self.command.get_envs() {
            match value {
                Some(value) => script.env(name, value),
                None => script.env_remove(name),
            };
        }
        script.current_dir(self.places.work.path());
        script.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        self.command = script;
        self
    }

    /// Starts it.
    pub fn start(self) -> Program {
        self.start_with(Lines::of)
    }

    /// Starts it with standard output closed at the other end.
    pub fn start_unread(self) -> Program {
        self.start_with(|out| {
            drop(out);
            Lines::of(std::io::empty())
        })
    }

    /// Starts it with a slow reader of its standard output.
    pub fn start_read_slowly(self) -> Program {
        self.start_with(|out| Lines::of(Slow(out)))
    }

    /// Starts it with standard output to a device without space.
    pub fn start_on_a_full_device(mut self) -> Program {
        let full = std::fs::File::options().write(true).open("/dev/full").expect("there is one");
        self.command.stdout(full);
        self.start_with(|_| unreachable!("there is no pipe"))
    }

    fn start_with(mut self, read: impl FnOnce(ChildStdout) -> Lines) -> Program {
        let mut child = self.command.spawn().expect("the program can be started");
        let out = child.stdout.take().map_or_else(|| Lines::of(std::io::empty()), read);
        let errors = Lines::of(child.stderr.take().expect("it is piped"));
        Program { child, out, errors, mark: self.mark, places: self.places, outlive: self.outlive }
    }

    /// Runs it to its end, and checks that nothing is left.
    pub fn run(self) -> ProgramOutput {
        self.start().end()
    }
}

impl Program {
    /// Returns its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns whether it runs. An ended program stays a zombie until its [end](Program::end).
    pub fn has_not_ended(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid()));
        stat.is_ok_and(|stat| !stat.contains(") Z "))
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(pid(self.pid()), signal).expect("it is alive");
    }

    /// Sends SIGINT to its process group, as a terminal does for Ctrl-C.
    pub fn press_ctrl_c(&self) {
        kill_process_group(pid(self.pid()), Signal::INT).expect("it is alive");
    }

    /// Writes a line to its standard input.
    pub fn say(&mut self, line: &str) {
        let input = self.child.stdin.as_mut().expect("it is piped");
        writeln!(input, "{line}").expect("it reads");
    }

    /// Waits for a line of output with this beginning, and removes it. Returns the rest.
    pub fn line(&self, beginning: &str) -> String {
        let mut found = None;
        self.wait_until(&format!("a line `{beginning}…`"), || {
            found = self.out.take(beginning);
            found.is_some()
        });
        found.unwrap_or_default()
    }

    /// Waits for a line of its errors with this beginning, and removes it. Returns the rest.
    pub fn error(&self, beginning: &str) -> String {
        let mut found = None;
        self.wait_until(&format!("an error `{beginning}…`"), || {
            found = self.errors.take(beginning);
            found.is_some()
        });
        found.unwrap_or_default()
    }

    /// Waits for a line of output that contains these words, removes it and returns it.
    pub fn line_with(&self, words: &str) -> String {
        let mut found = None;
        self.wait_until(&format!("a line with `{words}`"), || {
            let mut lines = self.out.lines.lock().unwrap();
            found =
                lines.iter().position(|line| line.contains(words)).map(|place| lines.remove(place));
            found.is_some()
        });
        found.unwrap_or_default()
    }

    /// Waits until its output contains all these texts.
    pub fn shows(&self, texts: &[String]) {
        self.wait_until("its output", || {
            let lines = self.out.lines.lock().unwrap();
            texts.iter().all(|text| lines.iter().any(|line| line.contains(text)))
        });
    }

    /// Waits for its end, and checks that none of its processes and no temporary file is left.
    pub fn end(mut self) -> ProgramOutput {
        drop(self.child.stdin.take());
        self.wait_until("the end of the program", || !self.has_not_ended());
        let status = self.child.wait().expect("it is a child");
        let ended = Instant::now();
        while !self.processes().is_empty() {
            let left = || self.processes().iter().map(|pid| describe(*pid)).collect::<Vec<_>>();
            assert!(ended.elapsed() < self.outlive, "processes are left: {:?}{self:?}", left());
            std::thread::sleep(PROCESSES_LOOK);
        }
        let left: Vec<_> = files(self.places.temporary.path());
        assert!(left.is_empty(), "files are left: {left:?}");
        let places = Arc::clone(&self.places);
        ProgramOutput { status, places, out: self.out.all(), errors: self.errors.all() }
    }

    /// Returns the ids of its processes that run, its own among them.
    pub fn processes(&self) -> HashSet<u32> {
        let wanted = format!("{MARK}={}", self.mark);
        let mut found = HashSet::new();
        for entry in std::fs::read_dir("/proc").expect("/proc is mounted").flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            // A batch script has the environment in which it was submitted, and is of its engine:
            // Slurm's `…/slurm_script`, Grid Engine's `…/job_scripts/46`.
            let command = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let command = String::from_utf8_lossy(&command);
            if command.ends_with("/slurm_script\0") || command.contains("/job_scripts/") {
                continue;
            }
            // A process that has ended and is not reaped has no environment.
            let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
            if environment.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes()) {
                found.insert(pid);
            }
        }
        found
    }

    /// Waits until `reached` returns `true`; `what` describes it for the error.
    #[track_caller]
    pub fn wait_until(&self, what: &str, mut reached: impl FnMut() -> bool) {
        wait_for(what, || if reached() { Ok(()) } else { Err(self) });
    }

    /// Returns whether all of its processes but for guards are stopped, or none of them.
    pub fn are_stopped(&self, stopped: bool) -> bool {
        let mut pids = self.processes().into_iter().filter(|pid| !is_guard(*pid));
        pids.all(|pid| fiber_core::is_stopped(pid) == stopped)
    }
}

/// Shows what it has printed, when it has ended.
impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "; its output:\n{}\nits errors:\n{}", self.out.all(), self.errors.all())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl ProgramOutput {
    /// Returns the working directory, which is deleted with this.
    pub fn directory(&self) -> &Path {
        self.places.work.path()
    }

    /// Returns the exit code, unless a signal ended the program.
    pub fn exit_code(&self) -> Option<i32> {
        self.status.code()
    }

    /// Checks the exit code.
    #[track_caller]
    pub fn code(self, code: i32) -> ProgramOutput {
        assert_eq!(self.status.code(), Some(code), "{}{}", self.out, self.errors);
        self
    }

    /// Checks that this signal ended the program.
    #[track_caller]
    pub fn signal(self, signal: Signal) -> ProgramOutput {
        assert_eq!(self.status.signal(), Some(signal.as_raw()), "{}{}", self.out, self.errors);
        self
    }

    /// Checks that its output contains all these texts.
    #[track_caller]
    pub fn says(self, texts: &[&str]) -> ProgramOutput {
        for text in texts {
            assert!(
                self.out.contains(text),
                "`{text}` is missing in:\n{}\nerrors:\n{}",
                self.out,
                self.errors
            );
        }
        self
    }
}

/// A reader that returns 4 KiB every 40 ms.
struct Slow<R>(R);

impl<R: Read> Read for Slow<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        std::thread::sleep(Duration::from_millis(40));
        let page = buffer.len().min(4 << 10);
        self.0.read(&mut buffer[..page])
    }
}

/// The lines of a stream, which a thread reads to its end.
#[derive(Debug)]
struct Lines {
    lines: Arc<Mutex<Vec<String>>>,
    reader: Mutex<Option<std::thread::JoinHandle<()>>>,
}

impl Lines {
    fn of(stream: impl Read + Send + 'static) -> Lines {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let reading = Arc::clone(&lines);
        let reader = std::thread::spawn(move || {
            let mut stream = BufReader::new(stream);
            let mut line = Vec::new();
            while stream.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
                reading.lock().unwrap().push(String::from_utf8_lossy(&line).trim_end().to_string());
                line.clear();
            }
        });
        Lines { lines, reader: Mutex::new(Some(reader)) }
    }

    fn take(&self, beginning: &str) -> Option<String> {
        let mut lines = self.lines.lock().unwrap();
        let place = lines.iter().position(|line| line.starts_with(beginning))?;
        Some(lines.remove(place)[beginning.len()..].trim().to_string())
    }

    /// Returns all lines that are left. Call it when the program has ended: it waits for the end of
    /// the stream.
    fn all(&self) -> String {
        let mut reader = self.reader.lock().unwrap();
        let deadline = Instant::now() + LONG;
        while reader.as_ref().is_some_and(|reader| !reader.is_finished())
            && Instant::now() < deadline
        {
            std::thread::sleep(LOOK);
        }
        reader.take_if(|reader| reader.is_finished()).map(std::thread::JoinHandle::join);
        self.lines.lock().unwrap().join("\n")
    }
}

/// Returns the process id of this number.
pub fn pid(number: u32) -> Pid {
    Pid::from_raw(number as i32).expect("0 is no process")
}

/// Returns whether a process is a guard that works.
pub fn is_guard(pid: u32) -> bool {
    std::fs::read(format!("/proc/{pid}/comm")).is_ok_and(|name| name == b"fiber-guard\n")
}

/// Returns whether a process is the first one of its namespace.
pub fn is_first(pid: u32) -> bool {
    let status = std::fs::read(format!("/proc/{pid}/status")).unwrap_or_default();
    let status = String::from_utf8_lossy(&status);
    let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    let ids: Vec<&str> = ids.unwrap_or_default().split_whitespace().collect();
    ids.len() > 1 && ids.last() == Some(&"1")
}

/// Returns the command line; each argument ends with a zero.
pub fn command_line(pid: u32) -> Vec<u8> {
    std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default()
}

fn describe(pid: u32) -> String {
    let read =
        |file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
    format!("{pid} {} {}", read("cmdline").replace('\0', " "), read("stat"))
}

fn files(directory: &Path) -> Vec<OsString> {
    let entries = std::fs::read_dir(directory).expect("the directory is there");
    entries.flatten().map(|entry| entry.file_name()).collect()
}
