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
import ctypes, sys, manylogs
from test_memory import held_mb
trim = getattr(ctypes.CDLL(None), "malloc_trim", lambda pad: 0)
trace = manylogs.read_trace(sys.argv[1], limit=2000)
for seed in range(12):
    manylogs.replay(trace, policies="mlb-paper", seeds=1, seed=seed, fit=True, threads=1)
    if seed in (3, 11):
        trim(0)
        print(held_mb())
"""


KEEPS = """
import sys, manylogs, pyarrow
keeps, repeat = sys.argv[2] == "keeps", int(sys.argv[3])
trace = manylogs.read_trace(sys.argv[1])
result = manylogs.replay(
    trace, policies="mlb", requests=keeps, repeat=repeat, seeds=1, fit=True, threads=1)
table = pyarrow.table(result["mlb"].requests) if keeps else None
with open("/proc/self/status", encoding="ascii") as file:
    # Not that of getrusage(2), which begins with what the process had that began this one.
    most_kb = next(int(line.split()[1]) for line in file if line.startswith("VmHWM:"))
print(most_kb * 1024, table.num_rows if keeps else 0)
"""


class Memory(unittest.TestCase):
    #: What a request takes that is kept, with all columns in the hands of another library.
    REQUEST_BYTES = 40
    #: Of the program, which holds one replay a thread and what the others measured.
    ADVICE_MORE_MB = 128

    def test_replays_leave_nothing_behind(self):
        # In a process of its own: what other tests leave to the allocator is not replays'. What
        # the allocator keeps although nobody holds it goes back to the system before it is counted.
        told = subprocess.run([sys.executable, "-c", REPLAYS, SAMPLE], check=True,
                              capture_output=True, text=True).stdout.split()
        before, after = map(float, told)
        # Each world of this policy takes 20 MB.
        self.assertLess(after - before, 20)

    def test_a_request_that_is_kept_takes_few_bytes(self):
        def run(keeps, repeat):
            told = subprocess.run([sys.executable, "-c", KEEPS, SAMPLE, keeps, str(repeat)],
                                  check=True, capture_output=True, text=True).stdout.split()
            return [int(word) for word in told]

        # Of two lengths, so that what does not depend on the length drops out.
        (few, few_rows), (many, many_rows) = run("keeps", 4), run("keeps", 24)
        without = run("drops", 24)[0] - run("drops", 4)[0]
        rows = many_rows - few_rows
        self.assertGreater(rows, 300_000)
        each = (many - few - without) / rows
        print(f"{each:.1f} bytes a request that is kept ", end="", file=sys.stderr, flush=True)
        self.assertLess(each, self.REQUEST_BYTES)
        self.assertGreater(each, 30, "the columns take 38")

    def test_advice_holds_little_more_than_its_largest_replay(self):
        for drive in ["exos-x20", "cheetah-15k5"]:
            with self.subTest(drive):
                load = [SAMPLE, "--drive", drive, "--fit", "--rate", "2"]
                replay = most_mb("replay", *load, "--policy", "mlb-paper", "--seeds", 1)
                advice = most_mb("advise", *load)
                self.assertLess(advice, replay + self.ADVICE_MORE_MB)


if __name__ == "__main__":
    unittest.main()
