#!/usr/bin/env python3
"""Plants bugs in the protocol, one at a time, and lets the simulated worlds look for each.

  mutations.py check                       whether each mutation applies to this tree; no build
  mutations.py run [--for SECONDS] [--scenario SCENARIO] [--part N/COUNT] [NAME…]
                                           plants all of them, or these, and prints what was found

`sim/mutations.txt` holds the mutations, and describes its format. `run` works in a copy of the
tracked files under the target directory, builds `fiber-sim` there, and keeps what it has built for
the next run. It plays the tree without a mutation first: a failure there is no find.
"""

import argparse
import contextlib
import dataclasses
import filecmp
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
TEXT = ROOT / "sim" / "mutations.txt"
# The seeds that have found a bug: each play begins with them, as it does in CI.
SEEDS = ROOT / "sim" / "seeds.txt"
# The profile of the workspace with which they are built.
PROFILE = "mutations"
# The beginning of the comment on a mutation that no world finds; its reason follows.
UNFOUND = "# No world finds it"
# How long a play may go on after its time: its last seeds, one of which may hang.
REST = 300


@dataclasses.dataclass
class Mutation:
    name: str
    what: str
    path: str
    line: int
    old: str = ""
    new: str = ""
    # Whether the file says why no world finds it.
    is_unfound: bool = False

    def apply(self, text):
        """Returns the text with the bug. ValueError: the old lines are not once in it."""
        count = ("\n" + text).count("\n" + self.old)
        if count != 1:
            raise ValueError(f"its old lines are {count} times in {self.path}, not once")
        return ("\n" + text).replace("\n" + self.old, "\n" + self.new)[1:]


def read():
    """Returns the mutations of the file."""
    mutations, names, is_unfound = [], set(), False
    lines = enumerate(TEXT.read_text().splitlines(), 1)
    for number, line in lines:
        if header := re.fullmatch(r"== ([a-z0-9-]+): (.+)", line):
            path = next(lines, (0, ""))[1]
            mutations.append(Mutation(*header.groups(), path, number, is_unfound=is_unfound))
            is_unfound = False
            if header[1] in names:
                sys.exit(f"{TEXT}:{number}: there are two mutations `{header[1]}`")
            names.add(header[1])
        elif line.startswith("-") and mutations:
            mutations[-1].old += line[1:] + "\n"
        elif line.startswith("+") and mutations:
            mutations[-1].new += line[1:] + "\n"
        elif line.startswith(UNFOUND):
            is_unfound = True
        elif line.strip() and not line.startswith("#"):
            sys.exit(f"{TEXT}:{number}: it is no `== NAME: WHAT`, `-OLD`, `+NEW` or `# COMMENT`")
    return mutations


def problem(mutation):
    """Returns why a mutation does not apply to this tree, or None."""
    try:
        if not mutation.old or mutation.old == mutation.new:
            return "it changes nothing"
        mutation.apply((ROOT / mutation.path).read_text())
    except (OSError, ValueError) as error:
        return str(error)
    return None


def check(mutations):
    """Prints which mutations do not apply. Returns whether all do."""
    problems = [(mutation, why) for mutation in mutations if (why := problem(mutation))]
    for mutation, why in problems:
        print(f"{TEXT}:{mutation.line}: {mutation.name}: {why}", file=sys.stderr)
    print(f"{len(mutations) - len(problems)} of {len(mutations)} mutations apply")
    return not problems


def copy_tree(to):
    """Makes `to` a copy of the tracked files. Files that are the same keep their times there."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True)
    names = set(filter(None, os.fsdecode(listed.stdout).split("\0")))
    names = {name for name in names if os.path.lexists(ROOT / name)}
    for old in to.rglob("*"):
        if (old.is_symlink() or old.is_file()) and str(old.relative_to(to)) not in names:
            old.unlink()
    for name in names:
        source, copy = ROOT / name, to / name
        if source.is_symlink() or not copy.is_file() or not filecmp.cmp(source, copy, False):
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.unlink(missing_ok=True)
            shutil.copy(source, copy, follow_symlinks=False)


def build(tree, target):
    """Builds the simulation of a tree. Returns its program, or None and the compiler's errors."""
    cargo = os.environ.get("CARGO", "cargo")
    command = [cargo, "build", "--profile", PROFILE, "-p", "fiber-sim"]
    settings = {"CARGO_TARGET_DIR": str(target), "CARGO_TERM_COLOR": "never"}
    # One function changes between two builds.
    environment = {**os.environ, **settings, "CARGO_INCREMENTAL": "1"}
    done = subprocess.run(command, cwd=tree, env=environment, text=True, capture_output=True)
    return target / PROFILE / "fiber-sim" if done.returncode == 0 else None, done.stderr


def play(program, seconds, scenario):
    """Lets worlds look for a failure, with one scenario or (None) all. Returns the first failure as
    a text, or None."""
    command = [program, "--for", str(seconds)]
    command += ["--scenario", scenario] if scenario else ["--known", SEEDS]
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    # In a group of its own, so that its children end with it: a failure is not made smaller.
    playing = subprocess.Popen(command, start_new_session=True, **output)
    signal.alarm(seconds + REST)
    try:
        for line in playing.stdout:
            if line.startswith("seed "):
                return line.strip()
        status = playing.wait()
        return f"it ended with {status}" if status != 0 else None
    except TimeoutError:
        return f"it does not end {REST} s after its time"
    finally:
        signal.alarm(0)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(playing.pid, signal.SIGKILL)
        playing.wait()


def look(tree, target, seconds, scenario):
    """Builds a tree and plays it. Returns the result as a text, and whether it is a failure of a
    world; None if there was nothing to play."""
    program, errors = build(tree, target)
    if not program:
        return f"DOES NOT COMPILE:\n{errors}", None
    began = time.monotonic()
    failure = play(program, seconds, scenario)
    took = f"{time.monotonic() - began:.0f} s"
    if failure:
        return f"found after {took}: {failure}", True
    return f"NOT FOUND in {took}", False


def run(mutations, seconds, scenario):
    """Plants each mutation, and prints what the worlds find. Returns whether they find all but those
    of which the file says that none does."""
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "mutations"
    tree = target.absolute() / "tree"
    copy_tree(tree)
    missed = []
    for mutation in [None, *mutations]:
        name = mutation.name if mutation else "(none)"
        if mutation:
            path = tree / mutation.path
            before = path.read_text()
            path.write_text(mutation.apply(before))
        try:
            result, is_found = look(tree, target.absolute(), seconds, scenario)
        finally:
            if mutation:
                path.write_text(before)
        print(f"{name}: {result}", flush=True)
        if not mutation and is_found is not False:
            sys.exit("the tree fails without a mutation, so a find would say nothing")
        if mutation and not is_found:
            missed.append(mutation)
    print(f"{len(mutations) - len(missed)} of {len(mutations)} mutations were found")
    return all(mutation.is_unfound for mutation in missed)


def late(*_):
    raise TimeoutError


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=["check", "run"])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--for", dest="seconds", type=int, default=600, help="time for each (600)")
    parser.add_argument("--scenario", help="the only one that is played (all)")
    parser.add_argument("--part", help="each COUNTth mutation from the Nth on, as 1/8 (all)")
    asked = parser.parse_intermixed_args()
    mutations = read()
    if unknown := set(asked.names) - {mutation.name for mutation in mutations}:
        sys.exit(f"there are no mutations {', '.join(sorted(unknown))} in {TEXT}")
    if asked.names:
        by_name = {mutation.name: mutation for mutation in mutations}
        mutations = [by_name[name] for name in asked.names]
    if asked.part:
        number, count = map(int, asked.part.split("/"))
        mutations = mutations[number - 1 :: count]
    applies = check(mutations)
    if asked.command == "run" and applies:
        signal.signal(signal.SIGALRM, late)
        return 0 if run(mutations, asked.seconds, asked.scenario) else 1
    return 0 if applies else 1


if __name__ == "__main__":
    sys.exit(main())
