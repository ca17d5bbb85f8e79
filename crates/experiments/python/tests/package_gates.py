"""What the package promises and takes minutes to show: `python package_gates.py GATE`.

instructions  of a request in a replay, over those of the program: at most 1.03, and 1.10 if
              requests are kept; counted by valgrind as `make bench` does, between two lengths
screen        the first 12,000 requests of the ten public traces on four conventional drives: of the
              pairs where `advise` says `use` none is cleared by `--effort screen`, and of the others
              at least 12 are
false         20 fleets of 200 disks, each the plain drive against itself from another seed: at most
              3 of them name any disk
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import manylogs
import test_fleet
from common import PROGRAM, SAMPLE, SHARED
from manylogs import _manylogs
from manylogs.fleet import _judge, _runner

#: Passes over the sample; the difference is what requests cost.
PASSES = (1, 3)
#: Most instructions over those of the program, without and with requests that are kept.
TIMES_MAX, TIMES_KEPT_MAX = 1.03, 1.10
REPLAY = """
import sys, manylogs
trace = manylogs.read_trace(sys.argv[1])
manylogs.replay(trace, "exos-x20", sys.argv[2], seeds=1, fit=True, threads=1,
                repeat=int(sys.argv[3]), requests=sys.argv[4] == "keeps")
"""
#: Drives without shingled bands.
CONVENTIONAL = ("cheetah-15k5", "constellation-es3", "exos-x20", "wd5000ys")
REQUESTS = 12_000
#: Of the pairs where `advise` does not say `use`.
CLEARED_MIN = 12


def counted(command):
    """Instructions of a command."""
    tool = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", *map(str, command)]
    done = subprocess.run(tool, capture_output=True, text=True, check=False)
    found = re.search(r"Collected : (\d+)", done.stderr)
    assert done.returncode == 0 and found, done.stderr
    return int(found[1])


def instructions():
    rows = len(manylogs.read_trace(SAMPLE)) * (PASSES[1] - PASSES[0])

    def each(command):
        few, many = (counted(command(passes)) for passes in PASSES)
        return (many - few) / rows

    within = True
    for policy in ("nologging", "mlb"):
        bare = each(lambda passes, policy=policy: [
            PROGRAM, "replay", SAMPLE, "--drive", "exos-x20", "--policy", policy, "--seeds", 1,
            "--fit", "--threads", 1, "--repeat", passes])
        for kept, most in (("drops", TIMES_MAX), ("keeps", TIMES_KEPT_MAX)):
            own = each(lambda passes, policy=policy, kept=kept: [
                sys.executable, "-c", REPLAY, SAMPLE, policy, passes, kept])
            within &= own <= most * bare
            print(f"{policy}, {kept} requests: {own:.0f} instructions a request, the program "
                  f"{bare:.0f}: {own / bare:.3f} times (at most {most})", flush=True)
    return within


def screen():
    traces = sorted(path for path in SHARED.glob("*") if path.suffix in (".zst", ".gz"))
    assert len(traces) == 10, f"the ten public traces are not at {SHARED} (set MANYLOGS_SHARED)"
    used = others = lost = cleared = 0
    for trace in traces:
        for drive in CONVENTIONAL:
            question = {
                "trace": str(trace), "profile": drive, "toml": manylogs.Drive(drive).toml(),
                "policies": ["nologging", "mlb"], "seeds": [1], "effort": "screen",
                "options": {"rate": "auto", "fit": True, "limit": REQUESTS}}
            screened = _runner.answer({"ask": "runs", **question})
            advised = _runner.answer({"ask": "advice", **question})
            assert "bad" not in screened and "bad" not in advised, (screened, advised)
            is_cleared, is_used = screened["decision"] == "cleared", advised["decision"] == "use"
            used, others = used + is_used, others + (not is_used)
            lost, cleared = lost + (is_used and is_cleared), cleared + (not is_used and is_cleared)
            print(f"{trace.name} on {drive}: {screened['decision']}, {advised['decision']} "
                  f"({screened['reason']})", flush=True)
    print(f"of {used} pairs that are to be used {lost} are cleared, of {others} others {cleared}")
    return lost == 0 and cleared >= CLEARED_MIN


def false(fleets=20, disks=200, requests=1000):
    named = shown = 0
    drive = manylogs.Drive("exos-x20")._native
    with tempfile.TemporaryDirectory() as folder:
        trace = pathlib.Path(folder) / "sda.csv"
        for nth in range(fleets):
            chances = []
            for disk in range(disks):
                test_fleet.write_trace(trace, nth * disks + disk, requests=requests)
                seeds = [1 + 2 * disk, 2 + 2 * disk]
                asked = _manylogs.Runs(
                    str(trace), drive, ["nologging"], seeds, name="sda", fit=True)
                one, other = (asked.run(at) for at in range(2))
                found = json.loads(_manylogs.gain([one], [other], seeds[0]))["durable_mean"]
                if found is not None:
                    chances.append(_judge.chance(found["estimate"], found["low"], found["high"]))
            shown += sum(chance < 0.025 for chance in chances)
            assert len(chances) > disks // 2, "most disks can be judged"
            named += any(_judge.discoveries(chances))
        print(f"{named} of {fleets} fleets of {disks} plain disks name any; intervals alone would "
              f"name {shown} disks")
    return named <= 3


GATES = {"instructions": instructions, "screen": screen, "false": false}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("gate", choices=GATES)
    return 0 if GATES[parser.parse_args().gate]() else 1


if __name__ == "__main__":
    sys.exit(main())
