#!/usr/bin/env python3
"""Holds the size of this repository below the limits of `scripts/size.txt`.

Each line there has a limit and what it is of: a crate's folder (lines of Rust outside of tests, without
blank lines and comments), `tests` (lines of all tests and benchmarks, counted alike) or `docs` (words
of the pages). A limit falls when what it is of has become smaller, and rises only with a reason in
the commit.

    check-size.py           fails above a limit
    check-size.py --write   writes what it counts as the limits
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIMITS = ROOT / "scripts/size.txt"
# In these folders, and in files of this name, are tests alone.
TESTS = re.compile(r"(^|/)(tests|benches|examples|fuzz)/|(^|/)tests\.rs$|^(sim|examples)/")


def files(pattern):
    out = subprocess.run(["git", "ls-files", pattern], cwd=ROOT, capture_output=True, check=True)
    return out.stdout.decode().split()


def code_lines(text):
    """Returns how many lines of code there are outside of `mod tests`, and within."""
    outside = within = 0
    in_tests = False
    for line in text.splitlines():
        content = line.strip()
        in_tests = in_tests or line.startswith("mod tests {")
        if content and not content.startswith("//"):
            outside, within = (outside, within + 1) if in_tests else (outside + 1, within)
        in_tests = in_tests and line != "}"
    return outside, within


def count():
    counts = {"docs": 0, "tests": 0}
    crates = [str(Path(name).parent) for name in files("*Cargo.toml")]
    for name in files("*.rs"):
        outside, within = code_lines((ROOT / name).read_text())
        if TESTS.search(name):
            outside, within = 0, outside + within
        counts["tests"] += within
        folders = [crate for crate in crates if crate != "." and name.startswith(f"{crate}/")]
        crate = max(folders, key=len, default="src")
        if outside:
            counts[crate] = counts.get(crate, 0) + outside
    for name in files("*.md"):
        counts["docs"] += len((ROOT / name).read_text().split())
    return counts


def main():
    counts = count()
    if sys.argv[1:] == ["--write"]:
        rows = [f"{-(-number // 100) * 100:7} {name}\n" for name, number in sorted(counts.items())]
        LIMITS.write_text("".join(rows))
        return 0
    limits = {name: int(limit) for limit, name in map(str.split, LIMITS.read_text().splitlines())}
    wrong = [
        f"{name} has {number}, and its limit is {limits.get(name, 0)}"
        for name, number in counts.items()
        if number > limits.get(name, 0)
    ]
    for problem in wrong:
        print(f"size: {problem} (scripts/size.txt)", file=sys.stderr)
    return 1 if wrong else 0


sys.exit(main())
