"""The interpreter stays free, Ctrl-C ends everything, and errors say what is wrong."""

import contextlib
import io
import os
import pathlib
import signal
import tempfile
import threading
import time
import unittest

import manylogs
from common import SAMPLE, program
from manylogs import _manylogs


class Interrupts(unittest.TestCase):
    #: Far longer than it takes to end, far shorter than the work: CPU is shared.
    ENDS_WITHIN_S = 20

    def setUp(self):
        # A shell ignores it for what runs in the background.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        self.addCleanup(signal.signal, signal.SIGINT, before)

    def ends(self, work):
        """Ctrl-C ends `work`, which would run for minutes."""
        pressed = []

        def press():
            pressed.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)

        timer = threading.Timer(0.7, press)
        timer.start()
        try:
            with self.assertRaises(KeyboardInterrupt):
                work()
        finally:
            timer.cancel()
        self.assertTrue(pressed)
        self.assertLess(time.monotonic() - pressed[0], self.ENDS_WITHIN_S)

    def test_ctrl_c_ends_a_replay(self):
        trace = manylogs.read_trace(SAMPLE)
        self.ends(lambda: manylogs.replay(trace, seeds=1000, repeat=1000, fit=True))

    def test_ctrl_c_ends_the_search_for_a_rate(self):
        trace = manylogs.read_trace("synthetic", limit=1_900_000)
        self.ends(lambda: manylogs.replay(trace, rate="auto", seeds=100, fit=True))

    def test_ctrl_c_ends_advice(self):
        trace = manylogs.read_trace(SAMPLE)
        self.ends(lambda: manylogs.advise(trace, repeat=200, fit=True))

    def test_ctrl_c_ends_a_sweep(self):
        self.ends(lambda: manylogs.sweep(
            traces=[SAMPLE], drives=["exos-x20"], policies=["mlb"], seeds=100_000, fit=True))

    def test_ctrl_c_ends_reading(self):
        self.ends(lambda: manylogs.read_trace("synthetic", limit=1 << 40))

    def test_the_package_works_after_that(self):
        self.test_ctrl_c_ends_reading()
        self.assertEqual(len(manylogs.read_trace("synthetic", limit=10)), 10)

    def test_other_threads_run_meanwhile(self):
        steps, done = [], threading.Event()

        def count():
            while not done.is_set():
                steps.append(None)
                time.sleep(0.001)

        thread = threading.Thread(target=count)
        thread.start()
        manylogs.replay(SAMPLE, policies="mlb", seeds=4, fit=True)
        done.set()
        thread.join()
        self.assertGreater(len(steps), 20)


class Errors(unittest.TestCase):
    def fails(self, code, work, words):
        with self.assertRaises(manylogs.Error) as caught:
            work()
        self.assertEqual(caught.exception.exit_code, code, caught.exception)
        self.assertIn(words, str(caught.exception))
        return caught.exception

    def test_bad_input_has_the_exit_code_and_the_words_of_the_program(self):
        for args, work in [
            (["replay", SAMPLE, "--policy", "mbl"], lambda: manylogs.replay(SAMPLE, policies="mbl")),
            (["replay", SAMPLE, "--drive", "cheetah-15k5"],
             lambda: manylogs.replay(SAMPLE, "cheetah-15k5")),
            (["replay", "no-such.trace"], lambda: manylogs.replay("no-such.trace")),
            (["replay", SAMPLE, "--limit", 9, "--policy", "slsmr"],
             lambda: manylogs.replay(manylogs.read_trace(SAMPLE, limit=9), policies="slsmr")),
            (["replay", SAMPLE, "--smr-cache", "full"],
             lambda: manylogs.replay(SAMPLE, smr_cache="full")),
            (["replay", SAMPLE, "--window", "9h+1s"],
             lambda: manylogs.replay(manylogs.read_trace(SAMPLE, window="9h+1s"))),
        ]:
            with self.subTest(args):
                told = program(*args, code=2)
                error = self.fails(2, work, "")
                self.assertIn(str(error), told)

    def test_a_malformed_line_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            trace = pathlib.Path(folder) / "bad.csv"
            trace.write_text("t_ns,op,lba,sectors\n0,R,0,8\n1,R,x,8\n")
            error = self.fails(2, lambda: manylogs.read_trace(trace), "expected a sector number")
            self.assertEqual((error.file, error.line), (str(trace), 3))

    def test_a_file_that_may_not_be_read(self):
        if os.geteuid() == 0:
            return self.as_nobody()
        self.forbidden()

    def as_nobody(self):
        child = os.fork()
        if child == 0:
            try:
                os.setuid(65534)
                self.forbidden()
                os._exit(0)
            finally:
                os._exit(1)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)

    def forbidden(self):
        with tempfile.TemporaryDirectory() as folder:
            trace = pathlib.Path(folder) / "secret.csv"
            trace.write_text("t_ns,op,lba,sectors\n0,R,0,8\n")
            trace.chmod(0)
            error = self.fails(6, lambda: manylogs.read_trace(trace), "secret.csv")
            self.assertEqual(error.file, str(trace))

    def test_options_that_make_no_sense(self):
        for options, words in [
            ({"rate": "fast"}, "rate: expected"),
            ({"rate": 0}, "rate: expected"),
            ({"loop": "round"}, "loop: expected open or closed"),
            ({"seeds": 0}, "seeds: expected 1 or more"),
            ({"small": "big"}, "small: expected a size"),
            ({"utilisation": 2, "rate": "auto"}, "utilisation: expected a share"),
            ({"durability": "maybe"}, "sync-every=5s"),
            ({"link": "usb"}, "link: expected sata or sas"),
        ]:
            with self.subTest(options):
                self.fails(2, lambda: manylogs.replay("synthetic", **options), words)  # noqa: B023
        self.fails(2, lambda: manylogs.read_trace(SAMPLE, window="noon"), "window: expected")
        self.fails(2, lambda: manylogs.read_trace(SAMPLE, format="xml"), "unknown trace format")
        self.fails(2, lambda: manylogs.Drive("exos-x21"), "unknown drive `exos-x21`")
        self.fails(2, lambda: manylogs.sweep(traces=[], drives=[], policies=[]), "`traces` is empty")

    def test_a_sweep_lists_what_it_cannot_read(self):
        rows = manylogs.sweep(
            traces=["no-such.trace", "synthetic"], drives=["exos-x20"], policies=["mlb"], seeds=1,
            limit=100, fit=True)
        self.assertEqual(len(rows), 1)
        self.assertIn("no-such.trace", rows.left_out[0])

    def test_a_panic_is_an_error(self):
        with self.assertRaises(manylogs.Panic) as caught:
            _manylogs.panics("planted")
        self.assertIsInstance(caught.exception, manylogs.Error)
        self.assertIn("planted", str(caught.exception))
        self.assertEqual(caught.exception.exit_code, 1)

    def test_errors_can_be_pickled(self):
        import pickle

        error = self.fails(2, lambda: manylogs.read_trace("no-such.trace"), "no-such.trace")
        again = pickle.loads(pickle.dumps(error))
        self.assertEqual((again.file, again.exit_code, str(again)),
                         (error.file, error.exit_code, str(error)))


class Shown(unittest.TestCase):
    def test_progress_is_shown_and_ends_where_it_should(self):
        trace = manylogs.read_trace(SAMPLE)
        for call, total in [
            (lambda: manylogs.replay(
                trace, policies=["nologging", "mlb"], seeds=2, fit=True, progress=True),
             4 * len(trace)),
            (lambda: manylogs.advise(
                manylogs.read_trace(SAMPLE, limit=500), fit=True, progress=True), None),
            (lambda: manylogs.sweep(
                traces=[SAMPLE], drives=["exos-x20"], policies=["nologging"], seeds=1, limit=500,
                fit=True, progress=True), None),
        ]:
            said = io.StringIO()
            with contextlib.redirect_stderr(said):
                call()
            self.assertIn("requests", said.getvalue())
            if total is not None:
                self.assertIn(f"{total / 1000:.0f}k/{total / 1000:.0f}k", said.getvalue())

    def test_what_shows_it_may_fail(self):
        def show(done):
            raise ZeroDivisionError

        trace = manylogs.read_trace(SAMPLE)
        drive = manylogs.Drive("exos-x20")
        with self.assertRaises(ZeroDivisionError):
            _manylogs.replay(
                [trace._native], drive._native, ["mlb"], "", seeds=30, fit=True, show=show)


if __name__ == "__main__":
    unittest.main()
