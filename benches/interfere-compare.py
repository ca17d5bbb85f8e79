"""Prints what interfere-compare.sh measured as Markdown, each figure the worst of all seeds."""
import json
import sys

STREAMS = {
    "read": "reader, depth 16, 1 MiB", "write": "writer, depth 16, 1 MiB",
    "random": "random reads, depth 32, 4 KiB",
}
DRIVES = {"cheetah-15k5": "Cheetah", "exos-x20": "exos-x20"}
LAYOUT = "mlb:log=10M,group=100M"


def load(folder, name):
    with open(f"{folder}/{name}.json", encoding="utf-8") as file:
        return json.load(file)["cases"]


def cell(cases):
    """Share kept, mean and 99th percentile of syncs, and their rate where it is not reached."""
    kept = min(case["kept"] for case in cases)
    reached = min(case["syncs_per_second"] for case in cases)
    text = f"{100 * kept:.1f} %; "
    if reached == 0:
        return text + "no sync ended"
    mean, p99 = (max(case["sync_ms"][name] for case in cases) for name in ["mean", "p99"])
    digits = 0 if mean >= 100 else 1
    text += f"{mean:,.{digits}f} / {p99:,.0f} ms"
    asked = cases[0]["syncs_asked"]
    return text if reached >= 0.98 * asked else text + f" ({reached:.1f}/s)"


def table(head, rows):
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print()


def chosen(cases, **wanted):
    return [case for case in cases if all(case[key] == value for key, value in wanted.items())]


def priorities(folder):
    latencies = ["none", "5ms", "10ms", "20ms"]
    rows = []
    for stream, name in STREAMS.items():
        raw, cases = load(folder, f"raw-{stream}"), load(folder, f"priority-{stream}")
        for drive, short in DRIVES.items():
            rows.append([name, short, "plain drive", cell(chosen(raw, drive=drive))]
                        + [""] * (len(latencies) - 1))
            for on in [False, True]:
                cells = [cell(chosen(cases, drive=drive, priority=on,
                                     policy=f"{LAYOUT},latency={latency}"))
                         for latency in latencies]
                rows.append(["", "", "with priorities" if on else "without priorities"] + cells)
    table(["beside", "drive", "", *(f"`latency={latency}`" for latency in latencies)], rows)


def caches(folder):
    columns = [("plain drive", "nologging"), ("volume", LAYOUT)]
    rows = []
    for stream, name in STREAMS.items():
        cases = load(folder, f"cache-{stream}")
        for drive, short in DRIVES.items():
            for cache, more in [("on", ""), ("off", "cache=off")]:
                row = [name, short, cache]
                for _, policy in columns:
                    separator = "," if ":" in policy else ":"
                    policy += separator + more if more else ""
                    row += [cell(chosen(cases, drive=drive, policy=policy, sync_mode=mode))
                            for mode in ["fua", "flush"]]
                rows.append(row)
    head = [f"{device}, {mode}" for device, _ in columns for mode in ["FUA", "writes and flush"]]
    table(["beside", "drive", "its cache", *head], rows)


def main(folder):
    priorities(folder)
    caches(folder)


main(sys.argv[1])
