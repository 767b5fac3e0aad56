"""Runs fiber's checks, and says at the end what each took, what failed and why.

`.ci/run` calls this with `quick`, with names of checks, or with nothing for all of them. With
`--list`, it prints the names, for the workflow of a forge.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree as xml
from pathlib import Path

# A check is a target of make with its variables.
#
# What every change must pass, the cheapest first.
QUICK = ["format", "test-features", "test", "lint", "site"]
# `make test` builds the programs of all tests, so that those of later checks wait for no build:
# cargo lets one build at a time use a directory.
FIRST = ["format", "test-features", "test"]
# Waits most of the time, for pods and jobs.
ENGINES = ["test-cluster"]
# These keep all cores busy, and their results depend on no clock. What builds much comes late: the
# engines' tests look for something to build when they begin.
BESIDE_ENGINES = [
    "deny",
    "miri",
    "test-seeds SIM_SECONDS=300 SIM_SEEDS=12000",
    "lint",
    "site",
    "sim SIM_PROFILE=steps SIM_SECONDS=60 SIM_SEEDS=1000",
    "test-docs",
]
# These have processes that must answer in time.
ALONE = ["test-user", "test-hosts", "test-nng", "soak SOAK=3 SOAK_BUILD="]

# One stage follows the other. The lists of a stage run side by side, each from first to last.
STAGES = [[FIRST], [BESIDE_ENGINES, ENGINES], [ALONE]]

# So many flaky tests are borne in a run.
MOST_FLAKY = 2
# The summary has at most so many lines: a forge shows the end of a log.
SUMMARY_LINES = 30
# Installed before the first check, because checks that run side by side would disturb each other's
# installation. Tests that need the last two are skipped without them.
SETUP = ["build", "tests", "collectives", "observability"]
# How often a stage with several lists says what runs: it shows the output of a check when it ends.
PROGRESS_SECONDS = 60
# nextest and the scripts have this time to end their processes after a signal.
GRACE_SECONDS = 30
# Runs a command at low priority. The kernel compares the priorities of processes within a session,
# and those of the sessions' autogroups (`man 7 sched`).
NICE = ["sh", "-c", '{ echo 10 >/proc/self/autogroup; } 2>/dev/null; exec nice "$@"', "sh"]


class Result:
    """What a check has shown."""

    def __init__(self, target):
        self.target = target
        self.seconds = 0
        self.passed = self.skipped = 0
        # For each failed test: its name, the reason, the command that runs it again.
        self.failed = []
        self.flaky = []
        # The reasons of tests that passed without testing anything.
        self.left_out = []
        self.is_failed = False


class Interrupted(Exception):
    """A signal that ends the run, with the names of the checks that it met."""


def main(arguments):
    names = [name_of(target) for lists in STAGES for checks in lists for target in checks]
    if arguments == ["--list"]:
        print("\n".join(names))
        return 0
    unknown = [name for name in arguments if name not in [*names, "quick"]]
    if unknown:
        print(f"there is no check `{unknown[0]}`: quick, {', '.join(names)}", file=sys.stderr)
        return 2
    stages = stages_of(arguments)
    signals = collect_signals()
    is_deny_asked = any("deny" in checks for lists in stages for checks in lists)
    for part in [*SETUP, "deny"] if is_deny_asked else SETUP:
        # A check that lacks a tool fails, and says so.
        subprocess.run(["scripts/setup.sh", part], check=False)
    os.environ.update(fresh_seeds())
    results = []
    try:
        for lists in stages:
            results += run_stage(lists, signals)
    except Interrupted as interrupted:
        number, names = interrupted.args
        name = signal.Signals(number).name
        during = ", ".join(names) or "no check"
        print(f"\n==> {name} ended this run during {during}: what they had started is stopped")
        return 128 + number
    return summarize(results)


def fresh_seeds():
    """Returns the variable by which simulated worlds play seeds that are fresh for each commit, and
    the same ones wherever the commit is checked."""
    git = ["git", "rev-parse", "HEAD"]
    commit = subprocess.run(git, capture_output=True, text=True, check=False).stdout
    return {"SIM_FRESH_FROM": str(int(commit[:15], 16))} if commit else {}


def collect_signals():
    """Returns the list to which signals add themselves that ask for an end. `run_stage` looks into
    it: an exception could come while a check starts."""
    signals = []
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # As `nohup` has it.
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, lambda number, _: signals.append(number))
    return signals


def name_of(target):
    return target.split()[0]


def stages_of(arguments):
    """Returns the stages with the checks that are asked for, without empty lists."""

    def is_asked(target):
        is_quick = target in QUICK and "quick" in arguments
        return not arguments or is_quick or name_of(target) in arguments

    asked = [[list(filter(is_asked, checks)) for checks in lists] for lists in STAGES]
    stages = [[checks for checks in lists if checks] for lists in asked]
    return [lists for lists in stages if lists]


def run_stage(lists, signals):
    """Runs the checks of each list one after the other, and the lists side by side."""
    is_shared = len(lists) > 1
    waiting = [list(checks) for checks in lists]
    running = [None] * len(lists)
    results = []
    told = time.monotonic()
    try:
        while True:
            for place, check in enumerate(running):
                if check and check.is_over():
                    running[place] = None
                    results.append(check.result())
                if not running[place] and waiting[place] and not signals:
                    running[place] = Check(waiting[place].pop(0), is_shared)
            now = [check for check in running if check]
            if signals:
                raise Interrupted(signals[0], [name_of(check.target) for check in now])
            if not now:
                return results
            if is_shared and time.monotonic() - told >= PROGRESS_SECONDS:
                told = time.monotonic()
                print(f"running: {', '.join(check.progress() for check in now)}", flush=True)
            time.sleep(0.1)
    finally:
        for check in filter(None, running):
            check.end()
        if ENGINES in lists:
            make = ["make", "--no-print-directory", "cluster-down"]
            subprocess.run(make, stdout=subprocess.DEVNULL, check=False)


class Check:
    """A check that runs. Its output goes to this program's at once, or as a whole at its end if
    others run beside it."""

    def __init__(self, target, is_shared):
        self.target = target
        self.is_shared = is_shared
        self.began = time.monotonic()
        self.seconds = 0
        self.lines = []
        self.reports = tempfile.TemporaryDirectory()
        print(f"started: make {target}" if is_shared else f"\n==> make {target}", flush=True)
        nice = NICE if is_shared and target not in ENGINES else []
        self.make = subprocess.Popen(
            [*nice, "make", "--no-print-directory", *target.split()],
            env={**os.environ, "TEST_REPORTS": self.reports.name},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            # Has its own process group, which `end` signals.
            start_new_session=True,
        )
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.make.stdout:
            if not self.is_shared:
                print(line, end="", flush=True)
            self.lines.append(line.rstrip("\n"))
        self.make.wait()
        self.seconds = time.monotonic() - self.began

    def is_over(self):
        return not self.reader.is_alive()

    def progress(self):
        return f"{name_of(self.target)} for {(time.monotonic() - self.began) / 60:.0f} min"

    def result(self):
        """Shows the output of a check that is over, and returns what it has shown."""
        if self.is_shared:
            print(f"\n==> make {self.target}", *self.lines, sep="\n", flush=True)
        result = Result(self.target)
        result.seconds = self.seconds
        result.is_failed = self.make.returncode != 0
        with self.reports:
            for report in sorted(Path(self.reports.name).iterdir()):
                read_report(result, report)
        read_libtest(result, self.lines)
        skipped = [line for line in self.lines if line.startswith("skipped: ")]
        result.left_out += [line.partition("skipped: ")[2] for line in skipped]
        if result.is_failed and not result.failed:
            again = f"make {self.target}"
            result.failed.append((name_of(self.target), reason_of(self.lines), again))
        return result

    def end(self):
        """Ends the check with its process group, and shows the end of its output."""
        limit = time.monotonic() + GRACE_SECONDS
        self.signal(signal.SIGTERM)
        while self.has_processes() and time.monotonic() < limit:
            time.sleep(0.1)
        self.signal(signal.SIGKILL)
        self.reader.join(1)
        if self.is_shared:
            lines = self.lines[-20:]
            print(f"\n==> make {self.target}, until it was ended", *lines, sep="\n", flush=True)
        self.reports.cleanup()

    def signal(self, number):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.make.pid, number)

    def has_processes(self):
        """Returns whether the process group has any but zombies, which a container's first process
        may leave there."""
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                state, _, group = stat.read_text(errors="replace").rpartition(")")[2].split()[:3]
                if int(group) == self.make.pid and state not in "ZX":
                    return True
        return False


def read_report(result, path):
    """Reads nextest's report, in JUnit's format."""
    for suite in xml.parse(path).getroot():
        for test in suite.iter("testcase"):
            name = f"{test.get('classname')} {test.get('name')}"
            failure = test.find("failure")
            failure = test.find("error") if failure is None else failure
            flaky = test.find("flakyFailure")
            if failure is not None:
                expression = f"binary_id(={test.get('classname')}) & test(={test.get('name')})"
                again = f"scripts/test.sh -E '{expression}'"
                result.failed.append((name, message_of(failure), again))
            elif test.find("skipped") is not None:
                result.skipped += 1
            else:
                result.passed += 1
                output = "\n".join(test.findtext(of) or "" for of in ("system-out", "system-err"))
                result.left_out += re.findall(r"^skipped: (.*)", output, re.MULTILINE)
                if flaky is not None:
                    result.flaky.append((name, message_of(flaky)))


def message_of(failure):
    """Returns the panic of a failed test with its message, on one line."""
    text = failure.get("message") or failure.get("type") or ""
    whole = re.compile(r"thread .* panicked at .*?(?=stack backtrace:|note: |\Z)", re.DOTALL)
    panic = whole.search(failure.text or "")
    return " ".join((panic[0] if panic else text).split())[:600]


def read_libtest(result, lines):
    """Reads the output of tests that nextest does not run."""
    for index, line in enumerate(lines):
        if counts := re.match(r"test result: .* (\d+) passed; (\d+) failed; (\d+) ignored", line):
            result.passed += int(counts[1])
            result.skipped += int(counts[3])
        elif test := re.match(r"---- (.*?)(?: stdout)? ----$", line):
            rest = lines[index + 1 : index + 40]
            panics = [place for place, text in enumerate(rest) if "panicked at" in text]
            reason = " ".join(rest[panics[0] : panics[0] + 2] if panics else rest[:2])
            result.failed.append((test[1], reason[:300], f"make {result.target}"))


def reason_of(lines):
    """Returns the first errors of a check, or else the end of its output."""
    lines = [line for line in lines if line.strip()]
    for error in (r"error|Diff in", r"(?!info|note|warning)[\w-]+: "):
        errors = [place for place, line in enumerate(lines) if re.match(error, line)]
        if errors:
            break
    shown = lines[errors[0] : errors[0] + 4] if errors else lines[-3:]
    return "\n         ".join(shown)


def summarize(results):
    """Prints the end of the output, and returns the exit code."""
    flaky = [test for result in results for test in result.flaky]
    failed = [test for result in results for test in result.failed]
    note_flaky(flaky)
    lines = ["==> summary"]
    took = [f"{name_of(result.target)} {result.seconds:.0f} s" for result in results]
    lines.append(f"took: {', '.join(took)}")
    lines += [f"FAILED: make {result.target}" for result in results if result.is_failed]
    left_out = sorted({why for result in results for why in result.left_out})
    if left_out:
        lines.append(f"skipped: {'; '.join(left_out)}"[:500])
    lines += [f"flaky: {name}: {reason}" for name, reason in flaky[: MOST_FLAKY + 1]]
    if len(flaky) > MOST_FLAKY:
        lines.append(f"FAILED: {len(flaky)} flaky tests, {MOST_FLAKY} at most")
    passed = sum(result.passed for result in results)
    skipped = sum(result.skipped for result in results)
    counts = f"tests: {passed} passed, {len(failed)} failed, {skipped} skipped"
    shown = 0
    for name, reason, again in failed:
        block = [f"failed: {name}", *f"         {reason}".splitlines(), f"         again: {again}"]
        # The last two lines are for the counts.
        if len(lines) + len(block) + 2 > SUMMARY_LINES:
            break
        lines += block
        shown += 1
    if shown < len(failed):
        lines.append(f"and {len(failed) - shown} more that failed, above")
    print("", *lines, counts, sep="\n")
    is_failed = any(result.is_failed for result in results) or len(flaky) > MOST_FLAKY
    return 1 if is_failed else 0


def note_flaky(flaky):
    """Adds flaky tests to a file outside of the checkout, with the date."""
    if not flaky:
        return
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    path = Path(cache) / "fiber" / "flaky-tests.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        for name, reason in flaky:
            print(time.strftime("%F %T"), name, reason, sep="\t", file=file)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
