#!/usr/bin/env python3
"""Tables (Markdown, standard output) and plots (SVG) of what run.sh has found.

report.py RESULTS PLOT_DIRECTORY

Of several runs of the same kind the last that is not void counts, of the stream alone the fastest.
Bandwidth is given as a share of what the stream alone gets from the raw drive on the same file
system.
"""
import json
import os
import sys

import matrix
import svg

SYSTEM_NAMES = {
    "ext4-ordered": "ext4 ordered", "ext4-journal": "ext4 journal", "xfs": "XFS",
    "ext4-journal-async": "ext4 journal, journal_async_commit",
    "ext4-writeback-async": "ext4 writeback, journal_async_commit",
    "ext4-ordered-5g": "ext4 ordered, 5 GiB journal",
    "ext4-journal-5g": "ext4 journal, 5 GiB journal",
}
BESIDE_NAMES = {
    "pg": "PostgreSQL", "wt-33": "MongoDB's engine, 33 ms", "wt-1": "MongoDB's engine, 1 ms",
}
STREAM_NAMES = {"read": "reader", "write": "writer"}
COLOURS = {"ext4-ordered": "#4477aa", "ext4-journal": "#cc6677", "xfs": "#228833"}
PARTS = ["small", "matrix", "databases"]
DEVICES = ["raw", "volume"]


class Runs:
    """What was found, by what was run."""

    def __init__(self, path):
        self.found = {}
        with open(path, encoding="ascii") as lines:
            for line in lines:
                run = json.loads(line)
                key = self.key(**run)
                before = self.found.get(key)
                # The stream alone is measured twice: what it can get is what counts.
                better = (run["beside"] != "none" or not before
                          or run["stream_mb_per_s"] > before["stream_mb_per_s"])
                if not run["void"] and better:
                    self.found[key] = run
        if not self.found:
            sys.exit(f"report.py: {path} has no run that counts")

    @staticmethod
    def key(part, drive, system, on, stream, beside, rate=None, **_):
        return (part, drive, system, on, stream, beside, rate)

    def get(self, *key):
        return self.found.get(key if len(key) == 7 else (*key, None))

    def values(self, index, keep=lambda _: True):
        """All values of a part of the key, in the order in which they were run."""
        return list(dict.fromkeys(key[index] for key in self.found if keep(key)))

    def places(self):
        """Drives and file systems on which there were databases."""
        return list(dict.fromkeys(key[1:3] for key in self.found if key[0] == "databases"))

    def alone(self, drive, system, on, stream):
        """The best that the stream got by itself, in either part: its file is in the same place."""
        runs = [self.get(part, drive, system, on, stream, "none") for part in PARTS]
        return max((run["stream_mb_per_s"] for run in runs if run), default=None)

    def kept(self, run):
        """The share of the raw drive's own bandwidth that the stream keeps, in per cent."""
        if not run or not run["stream_mb_per_s"]:
            return None
        alone = self.alone(run["drive"], run["system"], "raw", run["stream"])
        return alone and 100 * run["stream_mb_per_s"] / alone


def figure(run, name):
    return run["small"][name] if run and run["small"] else None


def number(value, digits=0):
    return "-" if value is None else f"{value:,.{digits}f}"


def latency(value):
    return number(value, 0 if value and value >= 100 else 1)


def ratio(above, below):
    return "-" if not above or not below else f"{above / below:.1f}"


def table(head, rows):
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print()


def pair(runs, raw, volume):
    """The cells that compare the two devices."""
    cells = []
    for run in [raw, volume]:
        cells += [
            f"{run['stream_mb_per_s']:.1f} ({number(runs.kept(run))} %)"
            if run and run["stream_mb_per_s"] else "-",
            number(figure(run, "per_s")),
            f"{latency(figure(run, 'mean_ms'))} / {latency(figure(run, 'p99_ms'))}"
            if run else "-",
        ]
    return cells + [
        ratio(volume and volume["stream_mb_per_s"], raw and raw["stream_mb_per_s"]),
        ratio(figure(raw, "mean_ms"), figure(volume, "mean_ms")),
    ]


def small_tables(runs, drive):
    is_small = lambda key: key[0] == "small" and key[1] == drive and key[5] == "small"
    for stream in runs.values(4, is_small):
        print(f"**{drive}, {STREAM_NAMES[stream]} beside small synced writes**\n")
        rows = []
        for system in runs.values(2, lambda key: is_small(key) and key[4] == stream):
            alone = [runs.alone(drive, system, on, stream) for on in DEVICES]
            rows.append([SYSTEM_NAMES.get(system, system), "none"] + [
                cell for mb_per_s in alone for cell in [number(mb_per_s, 1), "", ""]
            ] + [ratio(*reversed(alone)), ""])
            for rate in sorted(runs.values(6, lambda key: is_small(key) and key[2] == system)):
                both = [runs.get("small", drive, system, on, stream, "small", rate)
                        for on in DEVICES]
                rows.append(["", str(rate)] + pair(runs, *both))
        table(["file system", "asked/s", "raw: MB/s (kept)", "reached/s", "sync mean / p99 ms",
               "volume: MB/s (kept)", "reached/s", "sync mean / p99 ms", "bandwidth, times",
               "latency, times shorter"], rows)


def database_table(runs):
    rows = []
    for drive, system in runs.places():
        alone = [runs.alone(drive, system, on, "read") for on in DEVICES]
        rows.append([f"{drive}, {SYSTEM_NAMES.get(system, system)}", "the stream alone"] + [
            cell for mb_per_s in alone for cell in [number(mb_per_s, 1), "", ""]
        ] + [ratio(*reversed(alone)), ""])
        for beside, name in BESIDE_NAMES.items():
            for stream, where in [("none", "alone"), ("read", "beside the stream")]:
                both = [runs.get("databases", drive, system, on, stream, beside)
                        for on in DEVICES]
                if any(both):
                    cells = pair(runs, *both)
                    if stream == "none":
                        cells[0] = cells[3] = ""
                    rows.append(["", f"{name}, {where}"] + cells)
    if rows:
        print("**Databases beside a backup**\n")
        table(["on", "what", "raw: stream MB/s (kept)", "durable/s", "mean / p99 ms",
               "volume: stream MB/s (kept)", "durable/s", "mean / p99 ms", "bandwidth, times",
               "latency, times shorter"], rows)


def small_plot(runs, drive, directory):
    keep = lambda key: (key[0] == "small" and key[1] == drive and key[5] == "small"
                        and key[2] in COLOURS)
    streams, systems = runs.values(4, keep), runs.values(2, keep)
    rates = sorted(runs.values(6, keep))
    if not rates:
        return
    series = [(system, on) for system in systems for on in DEVICES]
    figures = [
        ("bandwidth kept, %", runs.kept, 100, False),
        ("small writes reached, of those asked, %",
         lambda run: run and 100 * figure(run, "per_s") / run["rate"], 100, False),
        ("mean latency of a sync, ms", lambda run: figure(run, "mean_ms"), None, True),
    ]
    panels = [
        svg.Panel(
            title=f"{STREAM_NAMES[stream]}: {title}" if row == 0 else title,
            groups=[str(rate) for rate in rates],
            bars=[[value(runs.get("small", drive, system, on, stream, "small", rate))
                   for system, on in series] for rate in rates],
            top=top, logarithmic=logarithmic, below="small writes asked for a second",
        )
        for row, (title, value, top, logarithmic) in enumerate(figures) for stream in streams
    ]
    legend = [(f"{SYSTEM_NAMES[system]}, {on}", COLOURS[system], on == "raw")
              for system, on in series]
    save(directory, f"effect-{drive}.svg", svg.picture(drive, panels, len(streams), legend))


def database_plot(runs, directory):
    places = runs.places()
    if not places:
        return
    series = list(DEVICES)
    groups = [name.replace("MongoDB's engine", "MongoDB's") for name in BESIDE_NAMES.values()]
    panels = []
    for title, stream, value, top, logarithmic in [
        ("bandwidth kept by the backup, %", "read", runs.kept, 100, False),
        ("mean latency beside the backup, ms", "read", lambda run: figure(run, "mean_ms"), None,
         True),
        ("mean latency alone, ms", "none", lambda run: figure(run, "mean_ms"), None, True),
    ]:
        for drive, system in places:
            bars = [[value(runs.get("databases", drive, system, on, stream, beside))
                     for on in series] for beside in BESIDE_NAMES]
            panels.append(svg.Panel(f"{drive}: {title}", groups, bars, top, logarithmic, ""))
    legend = [(on, "#4477aa", on == "raw") for on in series]
    save(directory, "effect-databases.svg",
         svg.picture("databases beside a backup", panels, len(places), legend))


def save(directory, name, text):
    os.makedirs(directory, exist_ok=True)
    with open(os.path.join(directory, name), "w", encoding="ascii") as file:
        file.write(text)
    print(f"report.py: {os.path.join(directory, name)}", file=sys.stderr)


def main():
    runs = Runs(sys.argv[1])
    for drive in runs.values(1):
        small_tables(runs, drive)
        small_plot(runs, drive, sys.argv[2])
        matrix.report(runs, drive, table, lambda name, text: save(sys.argv[2], name, text))
    database_table(runs)
    database_plot(runs, sys.argv[2])
    late = max(run["late_p99_ms"] for run in runs.found.values())
    seconds = sorted({run["seconds"] for run in runs.found.values()})
    print(f"{len(runs.found)} runs of {' or '.join(f'{s:.0f}' for s in seconds)} s; the p99 of the "
          f"drive's lateness was {late:.3f} ms in the worst.")


main()
