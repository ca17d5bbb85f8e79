"""Checks the figures of interfere.sh against what is promised; fails if one is not kept."""
import json
import sys

NONE = float("inf")
# Least share kept, longest mean and 99th percentile of a sync in ms, by load and drive.
GATES = {
    "read": {"cheetah-15k5": (0.86, 10, 30), "exos-x20": (0.815, 10, 30)},
    "write": {"cheetah-15k5": (0.77, 16, 40), "exos-x20": (0.75, 16, 40)},
    "journal": {"cheetah-15k5": (0.80, 11, NONE), "exos-x20": (0.67, 17, NONE)},
    "hold": {"cheetah-15k5": (0.91, 60, NONE), "exos-x20": (0.89, 60, NONE)},
    "random": {"cheetah-15k5": (0.65, 30, NONE), "exos-x20": (0.65, 30, NONE)},
    "priority": {"cheetah-15k5": (0.85, 15, NONE), "exos-x20": (0.85, 15, NONE)},
}
RATE_REACHED = 0.98


def main(folder):
    failed = 0
    print(f"{'load':9} {'drive':13} {'kept':>15} {'mean ms':>15} {'p99 ms':>15} {'rate':>5} "
          f"{'cases':>6} failed")
    for load, drives in GATES.items():
        with open(f"{folder}/{load}.json", encoding="utf-8") as file:
            cases = json.load(file)["cases"]
        for drive, (kept, mean, p99) in drives.items():
            own = [case for case in cases if case["drive"] == drive]
            bad = [case for case in own
                   if case["kept"] < kept or case["sync_ms"]["mean"] > mean
                   or case["sync_ms"]["p99"] > p99
                   or case["syncs_per_second"] < RATE_REACHED * case["syncs_asked"]]
            failed += len(bad)
            least = min(case["kept"] for case in own)
            means = max(case["sync_ms"]["mean"] for case in own)
            tails = max(case["sync_ms"]["p99"] for case in own)
            rate = min(case["syncs_per_second"] for case in own)
            bound = "-" if p99 == NONE else p99
            print(f"{load:9} {drive:13} {100 * least:6.1f} >= {100 * kept:4.1f} "
                  f"{means:8.1f} <= {mean:3} {tails:8.1f} <= {bound:3} {rate:5.1f} "
                  f"{len(own):6} {len(bad)}")
            for case in bad[:3]:
                print(f"    {case['stream_depth']} x {case['stream_size_bytes']} {case['at']} "
                      f"age {case['age_limit_ms']} ms seed {case['seed']}: kept {case['kept']}, "
                      f"{case['sync_ms']}")
    sys.exit(1 if failed else 0)


main(sys.argv[1])
