"""What the peers' scripts share: the cases, their sizes, and how a result is written.

Each script is called as `python3 X_bench.py CASE [ARGS…]` and prints one line of JSON:

    {"case", "library", "version", "python", "processes", "seconds", "count", "rate", "values", …}

`seconds` is the median over the repeats, `values` holds all of them, `rate` is `count / seconds`, and `note` says where a
case is not quite what was asked for. The cases:

    noop [N]           no-op tasks, each on its own                               rate: tasks a second
    map [N]            x + 1 over integers, in the library's recommended way      rate: items a second
    durable [N]        small tasks whose results are on the disk before use   rate: tasks a second
    recorded [N]       the same again, with all results on the disk           rate: results a second
    sleep TASKS SECS   that many sleeps, each task tracked on its own             seconds
    apply [N]          one task there and back, on a warm pool                    seconds: median of one
    bytes [N]          tasks with a 1 MiB argument and a 1 MiB result             rate: bytes a second, both ways
    arrays [N]         tasks that add 1 to an array of 16 MiB, 2 workers          rate: bytes a second, both ways
    broadcast          an array of 256 MiB to 4 workers, 16 tasks that sum it     seconds
    ready              from nothing to 4 workers that have all answered           seconds
    queue [N]          small elements from one process to another                rate: elements a second
    manager [N]        one call of an object in another process                  seconds: median of one
    chain [N]          tasks that each take the value of the one before          seconds: of one task
    fan [N]            the values of that many tasks, to one task               rate: values a second
    tree [N]           N values, added in pairs by tasks                         rate: tasks a second
    sort MIB MEMORY    random numbers with so many MiB of memory, 2 workers     seconds
    completed [N]      values of N tasks, each taken as it comes                 rate: values a second
    commands N PROGRAM   runs of a program, one a core                           rate: runs a second
"""

import json
import os
import platform
import statistics
import sys
import time

WORKERS = 5
READY_WORKERS = 4
REPEATS = 3
# A library for which a case takes longer than this is not made to repeat it.
PATIENCE_SECONDS = 30.0
MIB = 1 << 20


def timed(work):
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def repeated(work):
    """Seconds of each run of `work`: three, or fewer where one takes long."""
    values = []
    while len(values) < REPEATS and sum(values) < PATIENCE_SECONDS:
        values.append(timed(work))
    return values


def round_trips(call, count):
    """The median seconds of one `call`, for each of three runs of `count` calls."""
    for _ in range(50):
        call()
    medians, spent = [], time.perf_counter()
    while len(medians) < REPEATS and time.perf_counter() - spent < PATIENCE_SECONDS:
        medians.append(statistics.median(timed(call) for _ in range(count)))
    return medians


def cpus():
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def main(library, version, cases):
    """Runs the case that the command line names.

    A case is a function of its own arguments (as strings) that returns a dict with `values` (seconds of each repeat) and
    `count` (what one repeat did, for the rate; 1 for a round trip), and what else is worth saying.
    """
    if len(sys.argv) < 2 or sys.argv[1] not in cases:
        sys.exit(f"usage: {os.path.basename(sys.argv[0])} {{{','.join(cases)}}} [ARGS…]")
    case, args = sys.argv[1], sys.argv[2:]
    measured = cases[case](*args)
    seconds = statistics.median(measured["values"])
    result = {
        "case": case,
        "args": args,
        "library": library,
        "version": version,
        "python": platform.python_version(),
        "cpus": cpus(),
        "processes": READY_WORKERS if case == "ready" else WORKERS,
        "seconds": seconds,
        "count": measured["count"],
        "rate": measured["count"] / seconds,
    }
    result.update(measured)
    print(json.dumps(result), flush=True)
