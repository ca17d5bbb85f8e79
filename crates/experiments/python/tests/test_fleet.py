"""Fleets: the same figures as a sweep, the same bytes whatever happens, and what is bad apart."""

import contextlib
import io
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock

import fleet_scale
import manylogs
from common import PROGRAM, SAMPLE, shared_traces
from manylogs import fleet
from manylogs.fleet import _computing, _engine, _journal, _judge, _planner, _runner, _search, _worker

import pyarrow
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet as parquet

TESTS = pathlib.Path(__file__).resolve().parent
DISKS = 12


def write_trace(path, seed, requests=1500, op="RW"):
    """A load that is drawn from a seed; some disks write much, some little."""
    rng = random.Random(seed)
    lines, at = ["t_us,op,lba,sectors"], 0
    share = rng.choice([0.2, 0.5, 0.9])
    for _ in range(requests):
        at += int(rng.expovariate(1 / 15_000))
        kind = op if len(op) == 1 else "RW"[rng.random() < share]
        sectors = 8 if kind == "W" else rng.choice([8, 256])
        lines.append(f"{at},{kind},{rng.randrange(0, 1 << 28, 8)},{sectors}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="ascii")


def run(*args):
    """What `manylogs-fleet` does in this process: exit code, and what it prints."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = fleet.main([str(arg) for arg in args])
    return code, out.getvalue() + err.getvalue()


def files(out):
    """The bytes of all that a fleet leaves for users."""
    found = sorted([*(out / "results").iterdir(), out / "quarantine.parquet", out / "report.html"])
    return {str(path.relative_to(out)): path.read_bytes() for path in found}


def quarantined(out):
    rows = parquet.read_table(out / "quarantine.parquet").to_pylist()
    return {row["disk"]: row["reason"] for row in rows}


def children(pid, what):
    """Processes below `pid` whose command lines hold `what`."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError):
            stat = (path / "stat").read_text().rpartition(")")[2].split()
            if int(stat[1]) == pid:
                command = (path / "cmdline").read_bytes().decode(errors="replace")
                if what in command:
                    found.append(int(path.name))
                found += children(int(path.name), what)
    return found


#: A driver with one disk a task: there is something to lose at any time.
DRIVER = """
import sys
from manylogs.fleet import _fleet, _planner, main
_planner.TASK_S_MIN = 0.0
_fleet.LOOKS_A_TASK = 4
sys.exit(main(sys.argv[1:]))
"""


class Fleets(unittest.TestCase):
    OPTIONS = ("--workers", 2, "--fit", "--seeds", 2)

    @classmethod
    def setUpClass(cls):
        cls.kept = contextlib.ExitStack()
        cls.folder = pathlib.Path(cls.kept.enter_context(tempfile.TemporaryDirectory()))
        cls.traces = cls.folder / "traces"
        for nth in range(DISKS):
            write_trace(cls.traces / f"host{nth % 3}" / f"sd{nth}.csv", nth)
        cls.map = cls.folder / "map.toml"
        cls.map.write_text("default = 'exos-x20'\n[host]\nhost1 = 'cheetah-15k5'\n")
        cls.whole = cls.folder / "whole"
        cls.told = run(cls.traces, "--out", cls.whole, "--drives", cls.map, *cls.OPTIONS)

    @classmethod
    def tearDownClass(cls):
        cls.kept.close()

    def fleet(self, inventory, out, *more):
        return run(inventory, "--out", out, "--drives", self.map, *self.OPTIONS, *more)

    def started(self, out):
        """A driver of its own, whose runners take their time."""
        words = [self.traces, "--out", out, "--drives", self.map, *self.OPTIONS]
        path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
        own = {"MANYLOGS_FLEET_RUNNER": "odd_runner", "ODD_RUNNER_S": "0.4", "PYTHONPATH": path}
        driver = subprocess.Popen(
            [sys.executable, "-c", DRIVER, *map(str, words)],
            env={**os.environ, **own},
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(driver.wait)
        self.addCleanup(driver.kill)
        return driver

    def until(self, holds, why, seconds=60):
        end = time.monotonic() + seconds
        while not holds():
            self.assertLess(time.monotonic(), end, why)
            time.sleep(0.02)

    def test_figures_are_those_of_a_sweep(self):
        self.assertEqual(self.told[0], 0, self.told[1])
        rows = parquet.read_table(self.whole / "results").to_pylist()
        self.assertEqual(len(rows), DISKS * 2 * 2)
        for drive, hosts in [("exos-x20", ("host0", "host2")), ("cheetah-15k5", ("host1",))]:
            traces = [path for host in hosts for path in sorted((self.traces / host).iterdir())]
            wanted = pyarrow.table(manylogs.sweep(
                traces=traces, drives=[drive], policies=["nologging", "mlb"], seeds=2,
                fit=True)).to_pylist()
            own = [row for row in rows if row["host"] in hosts]
            self.assertEqual(len(own), len(wanted))
            key = lambda row: (row["trace_content"], row["policy"], row["seed"])
            for found, row in zip(sorted(own, key=key), sorted(wanted, key=key), strict=True):
                row.pop("trace")
                self.assertEqual({name: found[name] for name in row}, row)
        order = [(row["host"], row["disk"]) for row in rows]
        self.assertEqual(order, sorted(order))
        self.assertEqual({row["found_by"] for row in rows}, {"map"})
        gain = manylogs.replay(
            self.traces / "host0/sd0.csv", "exos-x20", ["nologging", "mlb"], fit=True,
            seeds=1)["mlb"]["gain"]
        single = self.folder / "single"
        run(self.traces / "host0/sd0.csv*", "--out", single, "--drives", self.map, "--fit",
            "--workers", 1)
        row = parquet.read_table(single / "results").to_pylist()[0]
        self.assertEqual(row["gain"], gain["durable_mean"]["estimate"])
        self.assertEqual(row["gain_low"], gain["durable_mean"]["low"])

    def test_the_same_command_computes_what_changed(self):
        before = files(self.whole)
        code, told = self.fleet(self.traces, self.whole)
        self.assertEqual((code, files(self.whole)), (0, before))
        self.assertIn(f"computed: 0 of {DISKS}", told)
        copy = self.folder / "copy"
        subprocess.run(["cp", "-r", self.traces, copy], check=True)
        write_trace(copy / "host0/sd0.csv", 77)
        code, told = self.fleet(copy, self.whole)
        self.assertIn(f"computed: 1 of {DISKS}", told)
        code, told = self.fleet(self.traces, self.whole)
        self.assertIn(f"computed: 0 of {DISKS}", told)
        self.assertEqual(files(self.whole), before)

    def test_workers_and_drivers_that_are_killed_change_nothing(self):
        out = self.folder / "killed"
        driver = self.started(out)
        journal = out / "state/journal"
        self.until(lambda: journal.exists() and journal.stat().st_size, "nothing is done")
        workers = children(driver.pid, "multiprocessing")
        workers = [pid for pid in workers if children(pid, "odd_runner")]
        self.assertGreater(len(workers), 0)
        os.kill(workers[0], signal.SIGKILL)
        size = journal.stat().st_size
        self.until(lambda: journal.stat().st_size > size, "it does not go on")
        code, told = self.fleet(self.traces, out)
        self.assertEqual(code, 5, told)
        self.assertIn(f"process {driver.pid}", told)
        driver.kill()
        driver.wait()
        # Workers end with their driver, and runners with their workers.
        left = journal.read_bytes()
        # A line that was under way.
        journal.write_bytes(left + b'00000000 {"key":"torn')
        self.until(lambda: self.fleet(self.traces, out)[0] != 5, "the lock is held")
        self.assertEqual(files(out), files(self.whole))

    def test_what_is_bad_is_quarantined_and_the_rest_is_right(self):
        out, traces = self.folder / "poisoned", self.folder / "poison"
        subprocess.run(["cp", "-r", self.traces, traces], check=True)
        bad = traces / "host9"
        bad.mkdir()
        (bad / "junk.csv").write_bytes(random.Random(1).randbytes(5000))
        (bad / "empty.csv").write_bytes(b"")
        write_trace(bad / "cut.csv", 1)
        packed = pyarrow.compress((bad / "cut.csv").read_bytes(), "zstd", asbytes=True)
        (bad / "cut.csv").unlink()
        (bad / "cut.csv.zst").write_bytes(packed[: len(packed) // 2])
        rows = b"t_us,op,lba,sectors\n" + b"1,W,8,8\n" * 4_000_000
        (bad / "bomb.csv.zst").write_bytes(pyarrow.compress(rows, "zstd", asbytes=True))
        (bad / "zeros.zst").write_bytes(pyarrow.compress(bytes(200 << 20), "zstd", asbytes=True))
        write_trace(bad / "reads.csv", 2, op="R")
        for nth, name in enumerate(("aborts", "changes", "hoards")):
            write_trace(bad / f"{name}.csv", 100 + nth)
        (bad / "missing.csv").symlink_to(bad / "nowhere")
        path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
        with unittest.mock.patch.dict(
            os.environ, MANYLOGS_FLEET_RUNNER="odd_runner", PYTHONPATH=path
        ):
            code, told = self.fleet(traces, out)
        self.assertEqual(code, 2, told)
        found = quarantined(out)
        for disk, reason in {
            "junk": "unknown trace format", "empty": "it is empty", "cut": "cut short",
            "bomb": "bomb", "reads": "no writes", "aborts": "SIGABRT", "zeros": "",
            "changes": "changes while it is read", "hoards": "exit code 9; memory: 512M", "missing": "No such file",
        }.items():
            self.assertIn(reason, found.pop(disk, f"{disk} is not there"))
        self.assertEqual(found, {})
        theirs = parquet.read_table(out / "results").drop_columns(["trace"])
        ours = parquet.read_table(self.whole / "results").drop_columns(["trace"])
        self.assertTrue(theirs.equals(ours))

    def test_inventories(self):
        listed = self.folder / "list.csv"
        lines = ["disk,trace,host,serial,model"]
        lines += [f"sd{nth},traces/host{nth % 3}/sd{nth}.csv,host{nth % 3},," for nth in range(4)]
        listed.write_text("\n".join(lines) + "\n")
        out = self.folder / "listed"
        self.assertEqual(self.fleet(listed, out)[0], 0)
        table = parquet.read_table(out / "results")
        wanted = parquet.read_table(self.whole / "results")
        mask = pyarrow.compute.is_in(wanted["disk"], pyarrow.array(["sd0", "sd1", "sd2", "sd3"]))
        self.assertTrue(table.equals(wanted.filter(mask)))
        parquet.write_table(pyarrow.csv.read_csv(listed), self.folder / "list.parquet")
        code, told = self.fleet(self.folder / "list.parquet", out)
        self.assertEqual(code, 0, told)
        self.assertIn("computed: 0 of 4", told)
        remote = self.folder / "remote"
        code, told = self.fleet(f"file://{self.traces}/host0", remote)
        self.assertEqual(code, 0, told)
        self.assertEqual(len(parquet.read_table(remote / "results")), DISKS // 3 * 4)
        listed.write_text("\n".join([*lines, lines[1]]) + "\n")
        self.assertEqual(self.fleet(listed, out)[0], 2)
        self.assertIn("host0 sd0 is listed twice", self.fleet(listed, out)[1])
        listed.write_text("disk,host\nsda,x\n")
        self.assertIn("trace must be there", self.fleet(listed, out)[1])
        listed.write_text("trace\n\"\"\n")
        self.assertIn("row 1 names no trace", self.fleet(listed, out)[1])
        # As a spreadsheet writes it.
        listed.write_text("\ufeff" + "\n".join(lines) + "\n", encoding="utf-8")
        code, told = self.fleet(listed, out, "--plan")
        self.assertEqual(code, 0, told)
        self.assertIn("disks: 4,", told)
        listed.write_text("host,trace,host\na,traces/host0/sd0.csv,b\n")
        self.assertIn("column host is there twice", self.fleet(listed, out)[1])
        listed.write_text("trace,serial\ntraces/host0/sd0.csv,S\ntraces/host1/sd1.csv,S\n")
        self.assertIn("serial number S is listed twice", self.fleet(listed, out)[1])

    def test_options_that_make_no_sense(self):
        for option in ("--workers", "--limit"):
            for value in ("0", "-1", "x"):
                with self.assertRaises(SystemExit) as caught:
                    self.fleet(self.traces, self.folder / "x", "--plan", f"{option}={value}")
                self.assertEqual(caught.exception.code, 2)

    def test_nobody_reads_what_is_printed(self):
        reads, writes = os.pipe()
        os.close(reads)
        words = [self.traces, "--out", self.whole, "--drives", self.map, *self.OPTIONS]
        for more in ([], ["--plan"]):
            done = subprocess.run(
                [sys.executable, "-m", "manylogs.fleet", *map(str, words), *more], stdout=writes,
                stderr=subprocess.PIPE, text=True, check=False)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
        os.close(writes)

    def test_a_full_disk_of_the_driver(self):
        out, traces = self.folder / "full", self.folder / "few"
        write_trace(traces / "sda.csv", 1, requests=300)
        keep, kept = _journal.Journal.keep, []

        def full(journal, key, entry):
            kept.append(key)
            if len(kept) == 2:
                raise OSError(28, "No space left on device")
            keep(journal, key, entry)

        with unittest.mock.patch.object(_journal.Journal, "keep", full):
            code, told = self.fleet(traces, out)
        self.assertEqual(code, 1, told)
        self.assertIn("No space left on device: the same command goes on", told)
        code, told = self.fleet(traces, out)
        self.assertEqual(code, 0, told)
        self.assertIn("computed: 1 of 1", told)

    def test_workers_only_work(self):
        with _engine.Workers(None, 1, 512 << 20) as workers:
            found = workers._begun().run(lambda dask_worker: list(dask_worker.periodic_callbacks))
        for callbacks in found.values():
            self.assertIn("heartbeat", callbacks)
            self.assertNotIn("profile", callbacks)

    def test_models_are_found(self):
        listed = self.folder / "models.csv"
        listed.write_text(
            "trace,model\ntraces/host0/sd0.csv,ST20000NM007D\ntraces/host0/sd3.csv,None Such\n")
        out = self.folder / "models"
        code, told = run(listed, "--out", out, "--fit", "--workers", 1)
        self.assertEqual(code, 2, told)
        self.assertIn("1 in quarantine", told)
        self.assertIn("None Such", quarantined(out)["sd3"])
        rows = parquet.read_table(out / "results").to_pylist()
        self.assertEqual({row["found_by"] for row in rows}, {"catalogue"})

    def test_advice_is_that_of_advise(self):
        folder, out = self.folder / "advised", self.folder / "advised-out"
        folder.mkdir()
        (folder / "sdb.trace.zst").symlink_to(SAMPLE)
        (folder / "sdc.csv").symlink_to(self.traces / "host0/sd0.csv")
        code, told = self.fleet(
            folder, out, "--effort", "advise", "--limit", 1500)
        self.assertEqual(code, 0, told)
        rows = {row["disk"]: row for row in parquet.read_table(out / "results").to_pylist()}
        for disk, file in [("sdb", SAMPLE), ("sdc", self.traces / "host0/sd0.csv")]:
            advice = manylogs.advise(manylogs.read_trace(file, limit=1500), fit=True)
            row, gain = rows[disk], advice["gain"]["durable_mean"]
            if row["decision"] != "cleared":
                self.assertEqual(row["decision"], advice.decision)
                self.assertEqual(row["gain_high"], gain["high"])
            self.assertEqual(row["carries"] is not None, advice.decision == "use")
        used = [row for row in rows.values() if row["decision"] == "use"]
        self.assertGreater(len(used), 0, "one of them gains")
        self.assertTrue(all(1 <= row["carries"] <= 16 for row in used))
        self.assertIn("Disks saved", (out / "report.html").read_text())
        self.divided(folder, out)

    def divided(self, folder, whole):
        """Searches whose replays are tasks of their own come to the same bytes, with guesses and
        without, and after a driver that ended in between."""
        options = ["--effort", "advise", "--limit", 1500]
        taken, further = [], []
        stepped = _computing.Computing._stepped

        def counted(computing, question, found, memory):
            taken.append(len(found.get("step", ())))
            further.append(taken[-1] > len(question["asks"]))
            if len(taken) == ends_after:
                raise KeyboardInterrupt
            return stepped(computing, question, found, memory)

        long = {"TASK_S_MAX": 0.0, "STEP_S": 0.2}
        with unittest.mock.patch.multiple(_planner, **long), \
                unittest.mock.patch.object(_computing.Computing, "_stepped", counted):
            for steps, ends in [(0, None), (10**9, 5)]:
                taken.clear()
                further.clear()
                ends_after = ends
                out = self.folder / f"divided-{steps}"
                with unittest.mock.patch.object(_search, "STEPS", steps):
                    code, told = self.fleet(folder, out, *options)
                    if ends:
                        self.assertEqual((code, len(taken)), (130, ends), told)
                        ends_after = None
                        code, told = self.fleet(folder, out, *options)
                self.assertEqual(code, 0, told)
                self.assertGreater(len(taken), 10)
                self.assertGreater(sum(taken), 60)
                # With steps as short as these workers go on with the next.
                self.assertTrue(any(further))
                self.assertEqual(files(out), files(whole))

    def test_nothing_that_would_be_used_is_cleared(self):
        cleared = used = 0
        chosen = ("cloud", "hadoop_e9_cpu", "msr10k", "umass")
        for trace in [path for path in shared_traces(self) if path.name.startswith(chosen)]:
            for drive in ("cheetah-15k5", "exos-x20"):
                question = {
                    "trace": str(trace), "profile": drive, "seeds": [1], "effort": "screen",
                    "toml": manylogs.Drive(drive).toml(), "policies": ["nologging", "mlb"],
                    "options": {"rate": "auto", "fit": True, "limit": 3000}}
                screened = _runner.answer({"ask": "runs", **question})["decision"]
                advised = _runner.answer({"ask": "advice", **question})["decision"]
                self.assertFalse(screened == "cleared" and advised == "use", (trace, drive))
                cleared += screened == "cleared"
                used += advised == "use"
        self.assertGreater(min(cleared, used), 0, "there are both")

    def test_plans_run_nothing(self):
        out = self.folder / "planned"
        code, told = self.fleet(self.traces, out, "--plan")
        self.assertEqual((code, out.exists()), (0, False))
        self.assertIn(f"disks: {DISKS}", told)
        self.assertIn("workers: 1000: ", told)

    def test_schedulers_without_tls_are_refused(self):
        code, told = self.fleet(self.traces, self.folder / "x", "--scheduler", "tcp://10.0.0.1:8786")
        self.assertEqual(code, 2)
        self.assertIn("--insecure", told)
        _engine.check_address("tls://10.0.0.1:8786", False)
        _engine.check_address("tcp://127.0.0.1:8786", False)
        _engine.check_address("tcp://10.0.0.1:8786", True)

    def test_other_versions_are_refused(self):
        class Client:
            def run(self, what, on_error):
                gone = OSError("connection reset")
                return {"tcp://a": _worker.version(), "tcp://b": "0.0.0-other", "tcp://c": gone}

        with self.assertRaises(manylogs.Error) as caught:
            _engine._same_version(Client())
        self.assertIn("tcp://b has manylogs 0.0.0-other", str(caught.exception))
        with self.assertRaises(manylogs.Error) as caught:
            _worker.work({"version": "0.0.0-other", "memory": 1, "questions": []})
        self.assertEqual(caught.exception.exit_code, 7)

    def test_the_program_starts_the_package(self):
        where = pathlib.Path(sys.executable).parent
        words = [PROGRAM, "fleet", self.traces, "--out", self.whole, "--drives", self.map,
                 "--fit", "--seeds", "2"]
        for path, code, said in [
            ("/nowhere", 2, "pip install"),
            (f"{where}:{os.environ['PATH']}", 0, "computed: 0 of"),
        ]:
            done = subprocess.run(
                words, env={**os.environ, "PATH": path}, capture_output=True, text=True,
                check=False)
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertIn(said, done.stdout + done.stderr)


class Planning(unittest.TestCase):
    #: The example fleet: a day of 120,000 disks.
    COUNT, MEAN, SIGMA = 120_000, 3.1e6, 1.5

    def requests(self):
        rng = random.Random(1)
        mu = 14.9469 - self.SIGMA**2 / 2  # ln of the mean
        return [rng.lognormvariate(mu, self.SIGMA) for _ in range(self.COUNT)]

    def test_tasks_keep_a_thousand_workers_busy(self):
        works = [
            fleet.Work(str(nth), _planner.replay_s(requests, 3), 3)
            for nth, requests in enumerate(self.requests())
        ]
        tasks = fleet.tasks_of(works)
        self.assertEqual(sum(map(len, tasks)), sum(
            1 if work.cost_s <= 60 else 3 for work in works), "each run once")
        costs = [_planner.sum_s(task) for task in tasks]
        self.assertAlmostEqual(sum(costs), sum(work.cost_s for work in works), delta=1)
        self.assertGreater(sorted(costs)[1], 10)
        divided = sum(1 for task, cost in zip(tasks, costs, strict=True) if cost > 60)
        self.assertTrue(all(task[0].nth is not None for task in tasks[:divided]))
        busy = fleet.busy_share(costs, 1000, 0.001)
        alone = fleet.busy_share(sorted((work.cost_s for work in works), reverse=True), 1000, 0.001)
        self.assertGreater(busy, 0.95)
        self.assertLess(alone, busy)

    def test_searches_in_steps_keep_workers_busy(self):
        # A tenth of the fleet on a tenth of the workers; make fleet-scale has all of them.
        requests = fleet_scale.requests_of(12_000)
        shares = fleet_scale.simulate(requests, 1_000, advise=True)
        self.assertGreater(shares.useful, 0.95, str(shares))

    def test_false_discoveries_are_few(self):
        named = 0
        for nth in range(20):
            rng = random.Random(nth)
            chances = []
            for _ in range(200):
                # The logarithm of a gain over the same drive, from 32 parts of its replay.
                parts = [rng.gauss(0, 0.3) for _ in range(32)]
                mean = sum(parts) / 32
                error = (sum((part - mean) ** 2 for part in parts) / 31 / 32) ** 0.5
                ends = [2.718281828 ** (mean + sign * 1.96 * error) for sign in (0, -1, 1)]
                chances.append(_judge.chance(*ends))
            named += any(_judge.discoveries(chances))
        self.assertLessEqual(named, 3)
        self.assertTrue(all(_judge.discoveries([_judge.chance(2.0, 1.7, 2.3)] * 5)))


if __name__ == "__main__":
    unittest.main()
