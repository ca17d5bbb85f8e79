"""The package gives what the program gives, to the byte."""

import pathlib
import tempfile
import unittest

import manylogs
from common import FIVE, SAMPLE, json_of, program, shared_traces, without_command

WAYS = [
    ([], {}),
    (["--rate", "auto", "--fit"], {"rate": "auto", "fit": True}),
    (["--loop", "closed", "--depth", "4", "--small", "64K", "--no-checkpoint", "--fit"],
     {"loop": "closed", "depth": 4, "small": "64K", "checkpoint": False, "fit": True}),
    (["--durability", "sync-every=1s", "--repeat", "2", "--seed", "7", "--fit"],
     {"durability": "sync-every=1s", "repeat": 2, "seed": 7, "fit": True}),
    (["--drive-link", "sas", "--drive-fua", "on", "--outstanding", "8", "--rate", "3", "--fit"],
     {"link": "sas", "fua": True, "outstanding": 8, "rate": 3, "fit": True}),
]


class Same(unittest.TestCase):
    def same_replay(self, traces, drive, policies, args, options, read):
        files = [traces] if isinstance(traces, (str, pathlib.Path)) else traces
        args = [*files, "--drive", drive, "--seeds", 1, *args]
        wanted = json_of("replay", *args, *(["--policy", ",".join(policies)] if policies else []))
        found = [manylogs.read_trace(file, **read) for file in files]
        result = manylogs.replay(found, drive, policies, seeds=1, **options)
        self.assertEqual(without_command(result.json()), without_command(wanted))
        self.assertIn("manylogs.replay(", result.figures["command"])
        return result

    def test_replays_of_the_sample_in_every_way(self):
        for args, options in WAYS:
            with self.subTest(options):
                self.same_replay(SAMPLE, "exos-x20", ["nologging", "mlb"], args, options, {})

    def test_policies_that_are_compared_when_none_is_named(self):
        result = self.same_replay(SAMPLE, "exos-x20", None, [], {}, {})
        self.assertEqual(len(result), 5)

    def test_parts_of_the_sample(self):
        for args, read in [
            (["--limit", 2000], {"limit": 2000}),
            (["--window", "20s+30s"], {"window": "20s+30s"}),
            (["--window", "busiest-writes:20s", "--limit", 900],
             {"window": "busiest-writes:20s", "limit": 900}),
            (["--window", "random:20s", "--seed", 5], {"window": "random:20s", "seed": 5}),
            (["--device", 0], {"device": 0}),
        ]:
            with self.subTest(read):
                seed = {"seed": read.get("seed", 1)}
                self.same_replay(SAMPLE, "exos-x20", ["nologging", "mlb"], args, seed, read)

    def test_every_profile_under_five_policies(self):
        for drive in manylogs.drives():
            with self.subTest(drive):
                args, options = ["--fit", "--limit", 1500], {"fit": True}
                self.same_replay(SAMPLE, drive, FIVE, args, options, {"limit": 1500})

    def test_mixes_and_generated_traces(self):
        self.same_replay(
            [SAMPLE, "synthetic"], "exos-x20", ["nologging", "mlb"],
            ["--limit", 2000, "--fit"], {"fit": True}, {"limit": 2000})

    def test_malformed_records_are_told_in_the_same_words(self):
        with tempfile.TemporaryDirectory() as folder:
            trace = pathlib.Path(folder) / "bad.csv"
            lines = [f"{n * 100000},{'RW'[n % 2]},{n * 64},8,{n % 2},0" for n in range(500)]
            lines[100], lines[200] = "what", lines[150]
            trace.write_text("t_ns,op,lba,sectors,fua,dev\n" + "\n".join(lines) + "\n")
            result = self.same_replay(
                trace, "exos-x20", ["nologging", "mlb"], ["--skip-bad"], {}, {"skip_bad": True})
            words = " ".join(result.figures["warnings"])
            self.assertIn("1 malformed records passed over", words)
            self.assertEqual(manylogs.read_trace(trace, skip_bad=True).dropped["malformed"], 1)

    def test_advice(self):
        args = [SAMPLE, "--drive", "cheetah-15k5", "--limit", 3000, "--fit"]
        trace = manylogs.read_trace(SAMPLE, limit=3000)
        advice = manylogs.advise(trace, "cheetah-15k5", disk="/dev/loop0", fit=True)
        wanted = json_of("advise", *args)
        # The program's advice names the disk that was recorded.
        self.assertEqual(advice.json().replace("/dev/loop0", "/dev/sdX"), wanted)

    def test_sweeps(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            sweep = folder / "s.toml"
            sweep.write_text(
                f"traces = ['{SAMPLE}', 'synthetic']\ndrives = ['exos-x20', 'wd5000ys']\n"
                "policies = ['nologging', 'mlb']\nseeds = 2\nlimit = 800\nfit = true\n"
                "[parameters]\nthreshold = ['32K', '128K']\n"
                "[output]\nparquet = 'rows.parquet'\ncsv = 'rows.csv'\n")
            program("sweep", sweep)
            rows = manylogs.sweep(
                traces=[SAMPLE, "synthetic"], drives=["exos-x20", manylogs.Drive("wd5000ys")],
                policies=["nologging", "mlb"], parameters={"threshold": ["32K", "128K"]},
                seeds=2, limit=800, fit=True)
            self.assertEqual(len(rows), 2 * 2 * 3 * 2)
            rows.to_parquet(folder / "own.parquet")
            rows.to_csv(folder / "own.csv")
            for kind in ["parquet", "csv"]:
                own, wanted = folder / f"own.{kind}", folder / f"rows.{kind}"
                self.assertEqual(own.read_bytes(), wanted.read_bytes(), kind)

    def test_the_ten_shared_traces(self):
        for trace in shared_traces(self):
            for drive in manylogs.drives():
                with self.subTest(trace=trace.name, drive=drive):
                    args, options = ["--fit", "--limit", 600], {"fit": True}
                    self.same_replay(trace, drive, FIVE, args, options, {"limit": 600})
            with self.subTest(trace=trace.name, call="advise"):
                args = [trace, "--drive", "cheetah-15k5", "--limit", 400, "--fit"]
                advice = manylogs.advise(
                    manylogs.read_trace(trace, limit=400), "cheetah-15k5", fit=True)
                self.assertEqual(advice.json(), json_of("advise", *args))


if __name__ == "__main__":
    unittest.main()
