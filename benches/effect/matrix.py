"""The part of report.py on readers and the kernel's schedulers: table, gates and plot."""
import svg

RATE = 320
READERS = {
    "read": "direct, depth 1", "read-8": "direct, depth 8",
    "read-cached": "through the page cache", "read-two": "two at once, direct",
}
SHORT = {"read": "depth 1", "read-8": "depth 8", "read-cached": "page cache", "read-two": "two"}
DEVICES = {
    "raw": "raw, none", "raw-mq-deadline": "raw, mq-deadline", "raw-kyber": "raw, kyber",
    "raw-bfq": "raw, bfq", "volume": "volume",
}
COLOURS = {
    "raw": "#777777", "raw-mq-deadline": "#ccbb44", "raw-kyber": "#cc6677", "raw-bfq": "#aa4499",
    "volume": "#4477aa",
}
SYSTEM = "ext4-ordered"
# What the volume has to reach: a share of the rate, and the mean of a sync.
REACHED, SYNC_MS = 0.98, 30
# A raw drive that reaches this share of the rate must keep less of the stream than the volume, one
# that does not may keep little more.
COMPARABLE, BANDWIDTH = 0.9, 0.95


class Matrix:
    """The runs of one drive."""

    def __init__(self, runs, drive):
        self.runs, self.drive = runs, drive
        found = runs.values(4, lambda key: key[0] == "matrix" and key[1] == drive)
        self.readers = [reader for reader in READERS if reader in found]

    def run(self, reader, device):
        return self.runs.get("matrix", self.drive, SYSTEM, device, reader, "small", RATE)

    def misses(self, reader):
        """What the volume does not reach beside `reader`, in words."""
        volume, found = self.run(reader, "volume"), []
        if not volume:
            return ["no run of the volume counts"]
        per_s, sync_ms = volume["small"]["per_s"], volume["small"]["mean_ms"]
        mb_per_s = volume["stream_mb_per_s"]
        if per_s < REACHED * RATE:
            found.append(f"{per_s:.0f} of {RATE} writes a second")
        if sync_ms >= SYNC_MS:
            found.append(f"syncs of {sync_ms:.1f} ms")
        for device, name in DEVICES.items():
            raw = self.run(reader, device)
            if device == "volume":
                continue
            if not raw:
                found.append(f"no run of {name} counts")
                continue
            wanted = raw["stream_mb_per_s"]
            if raw["small"]["per_s"] < COMPARABLE * RATE:
                wanted *= BANDWIDTH
                if per_s <= raw["small"]["per_s"]:
                    found.append(f"no more syncs than {name}")
            if mb_per_s < wanted:
                found.append(f"{mb_per_s / raw['stream_mb_per_s']:.2f} of the bandwidth of {name}")
            if sync_ms >= raw["small"]["mean_ms"]:
                found.append(f"no shorter syncs than {name}")
        return found


def cells(runs, run):
    if not run:
        return ["-", "-", "-"]
    kept = runs.kept(run)
    share = "" if kept is None else f" ({kept:.0f} %)"
    mean, p99 = run["small"]["mean_ms"], run["small"]["p99_ms"]
    return [f"{run['stream_mb_per_s']:.1f}{share}", f"{run['small']['per_s']:.0f}",
            f"{mean:,.{0 if mean >= 100 else 1}f} / {p99:,.{0 if p99 >= 100 else 1}f}"]


def report(runs, drive, table, save):
    matrix = Matrix(runs, drive)
    if not matrix.readers:
        return
    print(f"**{drive}, ext4 ordered, readers beside {RATE} small synced writes a second**\n")
    rows = []
    for reader in matrix.readers:
        alone = [runs.alone(drive, SYSTEM, on, reader) for on in ["raw", "volume"]]
        alone = " and ".join("-" if rate is None else f"{rate:.1f}" for rate in alone)
        rows.append([f"{READERS[reader]} (alone {alone} MB/s)", "", "", "", ""])
        rows += [["", name, *cells(runs, matrix.run(reader, device))]
                 for device, name in DEVICES.items()]
    table(["reader (alone raw and on the volume)", "device", "MB/s (kept)", "writes reached/s",
           "sync mean / p99 ms"], rows)
    for reader in matrix.readers:
        misses = matrix.misses(reader)
        print(f"* {READERS[reader]}: {'; '.join(misses) if misses else 'all gates hold'}")
    print()
    save(f"effect-matrix-{drive}.svg", picture(matrix))


def picture(matrix):
    figures = [
        ("bandwidth of the reader, MB/s", lambda run: run["stream_mb_per_s"], None, False),
        ("small writes a second", lambda run: run["small"]["per_s"], RATE, False),
        ("mean latency of a sync, ms", lambda run: run["small"]["mean_ms"], None, True),
    ]
    groups = [SHORT[reader] for reader in matrix.readers]
    panels = []
    for title, value, top, logarithmic in figures:
        bars = [[run and value(run) for run in
                 (matrix.run(reader, device) for device in DEVICES)] for reader in matrix.readers]
        panels.append(svg.Panel(title, groups, bars, top, logarithmic, ""))
    legend = [(name, COLOURS[device], device != "volume") for device, name in DEVICES.items()]
    return svg.picture(f"{matrix.drive}: readers and schedulers", panels, 1, legend)
