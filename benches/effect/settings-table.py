#!/usr/bin/env python3
"""What settings.sh has counted.

settings-table.py note WORK OUT SETTINGS OPERATION COUNT    adds the counts of one operation
settings-table.py table OUT                                 prints them as a Markdown table

Of several counts of the same operation the last is shown.
"""
import json
import sys


def load(path):
    with open(path, encoding="ascii") as file:
        return json.load(file)


def note(work, out, settings, operation, count):
    before, after = (load(f"{work}/{name}.json") for name in ["before", "after"])
    grown = lambda name: after["volume"][name] - before["volume"][name]
    asked = {new["kind"]: new["requests"] - old["requests"]
             for old, new in zip(before["requests"], after["requests"])}
    found = {
        "settings": settings, "operation": operation, "count": int(count),
        "records": grown("records"), "record_bytes": grown("record_bytes"),
        "bypassed_writes": grown("bypassed_writes"), "requests": asked,
    }
    with open(out, "a", encoding="ascii") as file:
        file.write(json.dumps(found) + "\n")
    each = found["records"] / found["count"]
    print(f"settings: {settings}, {operation}: {each:.2f} records", file=sys.stderr)


def table(out):
    found = {}
    with open(out, encoding="ascii") as lines:
        for line in lines:
            run = json.loads(line)
            found.setdefault(run["settings"], {})[run["operation"]] = run
    operations = list(dict.fromkeys(name for runs in found.values() for name in runs))
    print(f"| settings | {' | '.join(operations)} | KiB logged an append |")
    print("|" + "---|" * (len(operations) + 2))
    for settings, runs in found.items():
        cells = [f"{runs[name]['records'] / runs[name]['count']:.2f}" if name in runs else "-"
                 for name in operations]
        append = runs.get("append")
        cells.append(f"{append['record_bytes'] / append['count'] / 1024:.1f}" if append else "-")
        print(f"| {settings} | {' | '.join(cells)} |")


def main():
    {"note": note, "table": table}[sys.argv[1]](*sys.argv[2:])


main()
