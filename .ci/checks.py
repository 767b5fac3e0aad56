"""Runs fiber's checks one after the other, and says at the end what each took, what failed and why.

`.ci/run` calls this with `quick`, with names of checks, or with nothing for all of them. With
`--list`, it prints the names, for the workflow of a forge.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as xml
from pathlib import Path

# A target of make with its variables, and whether every change must pass it. The cheapest come
# first.
CHECKS = [
    ("format", True),
    ("test-features", True),
    ("test", True),
    ("lint", True),
    ("site", True),
    ("test-user", False),
    ("test-hosts", False),
    ("test-nng", False),
    ("soak SOAK=3 SOAK_BUILD=", False),
    ("test-seeds SIM_SECONDS=300 SIM_SEEDS=12000", False),
    ("sim SIM_PROFILE=steps SIM_SECONDS=60 SIM_SEEDS=1000", False),
    ("test-docs", False),
    ("deny", False),
    ("miri", False),
    ("test-cluster", False),
]
# So many flaky tests are borne in a run.
MOST_FLAKY = 2
# The summary has at most so many lines: a forge shows the end of a log.
SUMMARY_LINES = 30
# Tests that need these are skipped without them.
SETUP = ["collectives", "observability"]


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
        self.is_left_out = False


def main(arguments):
    names = [target.split()[0] for target, _ in CHECKS]
    if arguments == ["--list"]:
        print("\n".join(names))
        return 0
    unknown = [name for name in arguments if name not in [*names, "quick"]]
    if unknown:
        print(f"there is no check `{unknown[0]}`: quick, {', '.join(names)}", file=sys.stderr)
        return 2
    asked = [
        target
        for target, is_quick in CHECKS
        if not arguments or target.split()[0] in arguments or (is_quick and "quick" in arguments)
    ]
    os.environ.update(fresh_seeds())
    for part in SETUP:
        subprocess.run(["scripts/setup.sh", part], check=True)
    # The engines are stopped then, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        results = [run(target) for target in asked]
    finally:
        if any(target.startswith("test-cluster") for target in asked):
            make = ["make", "--no-print-directory", "cluster-down"]
            subprocess.run(make, stdout=subprocess.DEVNULL, check=False)
    return summarize(results)


def fresh_seeds():
    """Returns the variable by which simulated worlds play seeds that are fresh for each commit, and
    the same ones wherever the commit is checked."""
    git = ["git", "rev-parse", "HEAD"]
    commit = subprocess.run(git, capture_output=True, text=True, check=False).stdout
    return {"SIM_FRESH_FROM": str(int(commit[:15], 16))} if commit else {}


def run(target):
    """Runs a check, whose output goes to this program's."""
    result = Result(target)
    if target == "deny" and not shutil.which("cargo-deny"):
        print("\n==> make deny: skipped")
        result.is_left_out = True
        result.left_out.append("`make deny` installs cargo-deny, which takes minutes to build")
        return result
    print(f"\n==> make {target}", flush=True)
    began = time.monotonic()
    lines = []
    with tempfile.TemporaryDirectory() as reports:
        make = subprocess.Popen(
            ["make", "--no-print-directory", *target.split()],
            env={**os.environ, "TEST_REPORTS": reports},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        for line in make.stdout:
            print(line, end="", flush=True)
            lines.append(line.rstrip("\n"))
        result.is_failed = make.wait() != 0
        for report in sorted(Path(reports).iterdir()):
            read_report(result, report)
    read_libtest(result, lines)
    skipped = [line.partition("skipped: ")[2] for line in lines if line.startswith("skipped: ")]
    result.left_out += skipped
    if result.is_failed and not result.failed:
        result.failed.append((target.split()[0], reason_of(lines), f"make {target}"))
    result.seconds = time.monotonic() - began
    return result


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
    took = [f"{result.target.split()[0]} {result.seconds:.0f} s" for result in results]
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


sys.exit(main(sys.argv[1:]))
