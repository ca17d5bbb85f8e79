"""How much memory is held."""

import os
import subprocess
import sys
import unittest

import manylogs
from common import PROGRAM, SAMPLE

MB = 1 << 20


def held_mb() -> float:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE") / MB


def most_mb(*args: object) -> float:
    """The most that the program held."""
    command = [PROGRAM, *map(str, args)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0, args
    return usage.ru_maxrss / 1024


REPLAYS = """
import sys, manylogs
from test_memory import held_mb
trace = manylogs.read_trace(sys.argv[1], limit=2000)
for seed in range(12):
    manylogs.replay(trace, policies="mlb-paper", seeds=1, seed=seed, fit=True, threads=1)
    if seed in (3, 11):
        print(held_mb())
"""


class Memory(unittest.TestCase):
    #: Of the program, which holds one replay a thread and what the others measured.
    ADVICE_MORE_MB = 128

    def test_replays_leave_nothing_behind(self):
        # In a process of its own: what other tests leave to the allocator is not replays'.
        told = subprocess.run([sys.executable, "-c", REPLAYS, SAMPLE], check=True,
                              capture_output=True, text=True).stdout.split()
        before, after = map(float, told)
        # Each world of this policy takes 20 MB.
        self.assertLess(after - before, 20)

    def test_advice_holds_little_more_than_its_largest_replay(self):
        for drive in ["exos-x20", "cheetah-15k5"]:
            with self.subTest(drive):
                load = [SAMPLE, "--drive", drive, "--fit", "--rate", "2"]
                replay = most_mb("replay", *load, "--policy", "mlb-paper", "--seeds", 1)
                advice = most_mb("advise", *load)
                self.assertLess(advice, replay + self.ADVICE_MORE_MB)


if __name__ == "__main__":
    unittest.main()
