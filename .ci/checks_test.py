"""Tests checks.py with a `make` that does what a test says. `make format` runs this."""

import contextlib
import io
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock
from pathlib import Path

import checks

# Of the scripts below: waits for a file, for 20 s.
AWAIT = """await() {
    for i in $(seq 2000); do [ -e "$1" ] && return; sleep 0.01; done
    echo "$1 does not come"
    exit 1
}"""


class Schedule(unittest.TestCase):
    def test_the_quick_checks_run_one_after_the_other(self):
        stages = checks.stages_of(["quick"])
        self.assertEqual([check for [each] in stages for check in each], checks.QUICK)
        self.assertEqual(checks.stages_of([])[0], stages[0])

    def test_only_checks_without_clocks_run_beside_the_engines(self):
        for lists in checks.stages_of([]):
            self.assertTrue(len(lists) == 1 or lists == [checks.BESIDE_ENGINES, checks.ENGINES])

    def test_names_pick_checks_with_their_variables(self):
        soak = [target for target in checks.ALONE if target.startswith("soak ")]
        self.assertEqual(checks.stages_of(["soak", "format"]), [[["format"]], [soak]])


class Run(unittest.TestCase):
    """Each test runs checks.py in a folder with its own `make`, which notes its targets."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        (self.folder / "scripts").mkdir()
        self.script("scripts/setup.sh", "exit 0")

    def script(self, name, text):
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def start(self, make, *names):
        self.script("make", f'{AWAIT}\necho "$2" >>made\ncase $2 in\n{make}\nesac')
        run = "import checks, sys; checks.PROGRESS_SECONDS = 0; sys.exit(checks.main(sys.argv[1:]))"
        return subprocess.Popen(
            [sys.executable, "-B", "-c", run, *names],
            cwd=self.folder,
            env={
                **os.environ,
                "PATH": f"{self.folder}:{os.environ['PATH']}",
                "PYTHONPATH": str(Path(__file__).parent.resolve()),
                "XDG_CACHE_HOME": str(self.folder),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def made(self):
        return (self.folder / "made").read_text().split()

    def wait_for(self, condition, what):
        limit = time.monotonic() + 20
        while not condition():
            self.assertLess(time.monotonic(), limit, what)
            time.sleep(0.01)

    def test_engines_wait_while_others_compute(self):
        run = self.start(
            """
            deny) await engines; echo deny begins; touch deny; await go; echo deny ends;;
            test-cluster) echo one; touch engines; await deny; touch go; echo two;;
            """,
            "deny",
            "test-cluster",
        )
        output = run.communicate()[0]
        self.assertEqual(run.returncode, 0, output)
        # Each output is whole.
        self.assertIn("==> make deny\ndeny begins\ndeny ends\n", output)
        self.assertIn("==> make test-cluster\none\ntwo\n", output)
        self.assertRegex(output, "running: deny for 0 min, test-cluster for 0 min\n")
        self.assertEqual(self.made()[-1], "cluster-down")

    def test_a_failed_check_ends_no_other(self):
        run = self.start(
            "test) echo 'error: a planted one'; exit 1;;", "test", "test-cluster", "deny", "soak"
        )
        output = run.communicate()[0]
        self.assertEqual(run.returncode, 1, output)
        summary = output.partition("==> summary\n")[2]
        self.assertIn("FAILED: make test\n", summary)
        self.assertIn("failed: test\n         error: a planted one\n", summary)
        self.assertIn("         again: make test\n", summary)
        # The engines do not run any more beside tests that must be alone.
        self.assertEqual(self.made()[0], "test")
        self.assertEqual(self.made()[-2:], ["cluster-down", "soak"])

    def test_a_signal_ends_all_checks_and_the_engines(self):
        run = self.start(
            """
            deny) echo deny hangs; sleep 600 & echo $! >new; mv new sleeper; wait;;
            test-cluster) touch engines; sleep 600;;
            """,
            "deny",
            "test-cluster",
        )
        files = [self.folder / "sleeper", self.folder / "engines"]
        self.wait_for(lambda: all(file.exists() for file in files), "both run")
        run.send_signal(signal.SIGTERM)
        output = run.communicate()[0]
        self.assertEqual(run.returncode, 128 + signal.SIGTERM, output)
        self.assertIn("==> make deny, until it was ended\ndeny hangs\n", output)
        end = "==> SIGTERM ended this run during deny, test-cluster"
        self.assertIn(end, output.splitlines()[-1])
        self.assertEqual(self.made()[-1], "cluster-down")
        sleeper = Path("/proc", files[0].read_text().strip(), "stat")
        # A zombie, if this machine's first process collects none.
        self.assertTrue(not sleeper.exists() or ") Z " in sleeper.read_text())


class Summary(unittest.TestCase):
    def summarize(self, *results):
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            code = checks.summarize(results)
        return code, output.getvalue().strip().splitlines()

    def test_many_failures_fit_into_it(self):
        result = checks.Result("test")
        result.is_failed = True
        result.failed = [(f"test {n}", "one\ntwo\nthree", "make test") for n in range(40)]
        code, lines = self.summarize(checks.Result("format"), result)
        self.assertEqual(code, 1)
        self.assertLessEqual(len(lines), checks.SUMMARY_LINES)
        self.assertIn("failed: test 0", lines)
        self.assertRegex(lines[-2], r"and \d+ more that failed, above")
        self.assertIn("40 failed", lines[-1])

    def test_flaky_tests_are_named_and_borne_up_to_a_number(self):
        with tempfile.TemporaryDirectory() as cache, unittest.mock.patch.dict(
            os.environ, XDG_CACHE_HOME=cache
        ):
            for number in (checks.MOST_FLAKY, checks.MOST_FLAKY + 1):
                result = checks.Result("test")
                result.flaky = [(f"test {n}", "a panic") for n in range(number)]
                code, lines = self.summarize(result)
                self.assertEqual(code, int(number > checks.MOST_FLAKY))
                self.assertIn("flaky: test 1: a panic", lines)
            noted = Path(cache, "fiber/flaky-tests.txt").read_text()
            self.assertEqual(noted.count("a panic"), 2 * checks.MOST_FLAKY + 1)


if __name__ == "__main__":
    unittest.main()
