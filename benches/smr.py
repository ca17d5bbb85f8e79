#!/usr/bin/env python3
"""Shingled drives beside a conventional one, second by second, in virtual time.

smr.py [--manylogs target/release/manylogs] [--seconds 600] [--out docs/plots/smr.svg]

Draws MiB a second of random 4 KiB writes (after Fig. 1 of "Evolving ext4 for shingled disks", FAST
2017) and of a file server (after its Fig. 12), and prints the figures of the end as a table.
"""
import argparse
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "effect"))
import svg  # noqa: E402

DRIVES = [("exos-x20", "#2a6f97"), ("st8000as0002", "#c1121f"), ("wd40nmzw", "#6a994e")]
LOADS = [("random-4k", "random writes of 4 KiB, MiB/s", True),
         ("fileserver", "a file server, MiB/s", False)]
STEP = 5  # seconds of a point in the plot


def exercise(options, drive, load):
    command = [options.manylogs, "drive", "exercise", drive, "--load", load, "--json",
               "--seconds", str(options.seconds)]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


def means(series):
    parts = [series[at:at + STEP] for at in range(0, len(series), STEP)]
    return [sum(part) / len(part) for part in parts]


def panel(runs, title, logarithmic, x, seconds):
    values = [means(run["mib_s"]) for run in runs]
    # What a logarithmic axis cannot show lies at its bottom.
    shown = [[max(value, 0.001) for value in line] if logarithmic else line for line in values]
    scale = svg.Scale(svg.Panel(title, [], shown, None, logarithmic, ""))
    left, right = x + svg.LEFT, x + svg.WIDTH - svg.RIGHT
    above, below = svg.ABOVE, svg.HEIGHT - svg.BELOW
    out = [svg.text(x + svg.WIDTH / 2, 18, title, more='font-weight="bold"')]
    for mark in scale.marks:
        at = below - scale.share(mark) * (below - above)
        out.append(f'<line x1="{left}" x2="{right}" y1="{at:.1f}" y2="{at:.1f}" stroke="#ddd"/>')
        out.append(svg.text(left - 6, at + 4, f"{mark:,.10g}", "end"))
    for second in range(0, seconds + 1, seconds // 4):
        at = left + (right - left) * second / seconds
        anchor = "end" if second == seconds else "middle"
        out.append(svg.text(at, below + 15, f"{second} s", anchor))
    for line, (_, colour) in zip(shown, DRIVES):
        points = " ".join(
            f"{left + (right - left) * (index + 0.5) / len(line):.1f},"
            f"{below - scale.share(value) * (below - above):.1f}"
            for index, value in enumerate(line))
        out.append(f'<polyline points="{points}" fill="none" stroke="{colour}" '
                   'stroke-width="1.6"/>')
    return out


def legend():
    out, x = [], svg.LEFT
    for drive, colour in DRIVES:
        y = svg.HEIGHT - 8
        out.append(f'<line x1="{x}" x2="{x + 22}" y1="{y - 4}" y2="{y - 4}" stroke="{colour}" '
                   'stroke-width="3"/>')
        out.append(svg.text(x + 28, y, drive, "start"))
        x += 150
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--manylogs", default="target/release/manylogs")
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--out", default="docs/plots/smr.svg")
    options = parser.parse_args()
    body = []
    print("| load | drive | first 5 s, MiB/s | last minute, MiB/s | cache full after "
          "| seconds without progress | slowest request |")
    print("|---|---|---|---|---|---|---|")
    for place, (load, title, logarithmic) in enumerate(LOADS):
        runs = [exercise(options, drive, load) for drive, _ in DRIVES]
        body += panel(runs, title, logarithmic, place * svg.WIDTH, options.seconds)
        for run in runs:
            full = run["cache_full_second"]
            print(f"| {load} | {run['drive']} | {means(run['mib_s'])[0]:.2f} "
                  f"| {sum(run['mib_s'][-60:]) / 60:.3f} "
                  f"| {'never' if full is None else f'{full} s'} "
                  f"| {run['seconds_without_progress']} | {run['slowest_ms'] / 1e3:.2f} s |")
    width = svg.WIDTH * len(LOADS)
    with open(options.out, "w") as file:
        file.write(f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" '
                   f'height="{svg.HEIGHT}" viewBox="0 0 {width} {svg.HEIGHT}">'
                   f'<rect width="{width}" height="{svg.HEIGHT}" fill="#fff"/>'
                   + "".join(body + legend()) + "</svg>\n")


main()
