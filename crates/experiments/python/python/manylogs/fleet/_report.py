"""The report of a fleet: one page that needs nothing else, whatever the number of disks."""

from __future__ import annotations

import base64
import gzip
import html
import importlib.resources
import json
import math
import statistics
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from ._judge import FALSE_SHARE, chance, discoveries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ._inventory import Disk
    from ._results import Judged

#: Groups of disks that a table shows at most.
GROUPS_MAX = 30
#: Bars of the histogram: gains from 1/4 to 4, by steps of the same ratio.
_BARS, _LARGEST = 32, 4.0

GAINS, CLEARED, OPEN, OVERLOADED, NOT = (
    "gains", "cleared", "not certain", "overloaded", "do not use",
)  # fmt: skip


def groups(found: Sequence[Judged], effort: str) -> list[str]:
    """Where each disk stands: those that gain are named so that at most 5 % of them are false."""
    chances = [_chance(judged.entry) for judged in found]
    # All that were measured are tried, also those that show no gain.
    tried = [nth for nth, value in enumerate(chances) if value is not None]
    named = dict(zip(tried, discoveries([chances[nth] or 0.0 for nth in tried]), strict=True))
    return [_group(judged.entry, named.get(nth, False), effort) for nth, judged in enumerate(found)]


def _chance(entry: dict[str, Any]) -> float | None:
    """See :func:`chance`; the best of several tries looks better than it is."""
    if entry["gain"] is None or entry["decision"] == "overloaded":
        return None
    found = chance(entry["gain"], entry["gain_low"], entry["gain_high"])
    return min(1.0, found * int(entry.get("tries", 1)))


def _group(entry: dict[str, Any], named: bool, effort: str) -> str:
    decision = entry["decision"]
    if decision in ("overloaded", "cleared"):
        return OVERLOADED if decision == "overloaded" else CLEARED
    if decision == "do-not-use":
        return NOT
    says = "use" if effort == "advise" else "open"
    return GAINS if named and decision == says else OPEN


def page(found: Sequence[Judged], bad: Sequence[tuple[Disk, str]], effort: str) -> str:
    """The page, in ASCII."""
    stand = groups(found, effort)
    counts = Counter(stand)
    reasons = Counter(_kind(judged.entry) for judged, at in zip(found, stand, strict=True)
                      if at not in (GAINS, OVERLOADED))  # fmt: skip
    parts = {
        "TILES": _tiles(counts, len(found), len(bad)),
        "WHO": _who(found, stand, effort),
        "HISTOGRAM": _histogram(found, stand),
        "WHY": _table(("why", "disks"), reasons.most_common(GROUPS_MAX)),
        "DRIVES": _by("drive", found, stand, lambda judged: judged.profile.name),
        "MODELS": _by("model", found, stand, lambda judged: judged.model or "(not known)"),
        "HOSTS": _by("host", found, stand, lambda judged: judged.disk.host or "(no host)"),
        "FOUND_BY": _table(
            ("profile found by", "disks"),
            Counter(judged.profile.found_by for judged in found).most_common(),
        ),
        "BAD": _table(
            ("reason", "disks"),
            Counter(_shape(reason) for _, reason in bad).most_common(GROUPS_MAX),
        ),
        "DATA": _packed(_rows(found, stand, bad)),
    }
    text = importlib.resources.files(__package__).joinpath("report.html").read_text("ascii")
    for name, part in parts.items():
        text = text.replace(f"<!-- {name} -->", part)
    return text.encode("ascii", "xmlcharrefreplace").decode("ascii")


def _kind(entry: dict[str, Any]) -> str:
    """The reason without its figures."""
    decision = str(entry["decision"])
    if decision == "cleared":
        return str(entry["reason"]).partition(":")[0]
    if decision == "open" or decision == "no-difference":
        return "the difference may be chance, or is small"
    return {"do-not-use": "reads, streams or writes would be slower"}.get(decision, decision)


def _shape(reason: str) -> str:
    """A reason without what is of one trace only."""
    words = [word for word in reason.split() if not any(letter.isdigit() for letter in word)]
    return " ".join(words)[:100]


def _tiles(counts: Counter[str], judged: int, bad: int) -> str:
    names = [(GAINS, GAINS), (OPEN, OPEN), (CLEARED, CLEARED), (NOT, NOT)]
    names.append((OVERLOADED, OVERLOADED))
    shown = [(name, counts[key]) for name, key in names] + [("quarantined", bad)]
    whole = max(judged + bad, 1)
    tile = '<div class="tile {}"><b>{:,}</b><span>{}<br>{:.1f} %</span></div>'
    return "".join(
        tile.format(name.replace(" ", "-"), count, name, 100.0 * count / whole)
        for name, count in shown
    )


def _who(found: Sequence[Judged], stand: Sequence[str], effort: str) -> str:
    gains = [judged.entry["gain"] for judged, at in zip(found, stand, strict=True) if at == GAINS]
    alone = sum(
        1 for judged in found
        if judged.entry["decision"] not in ("overloaded", "cleared", "do-not-use")
        and (judged.entry["gain_low"] or 0.0) > 1.0
    )  # fmt: skip
    if not gains:
        said = "No disk gains beyond doubt."
    else:
        middle = statistics.median(gains)
        said = (
            f"{len(gains):,} of {len(found):,} disks gain beyond doubt: their data is durable "
            f"{middle:.2f} times as fast (median; {min(gains):.2f} to {max(gains):.2f})."
        )
    saved = _saved(found, stand)
    by = (
        "The search of <code>advise</code> has judged them."
        if effort == "advise"
        else "This was a screening: <code>--effort advise</code> judges them, with settings."
    )
    return (
        f"<p>{said} {by}</p>{saved}<p>Single intervals of 95 % would name {alone:,}; of the disks "
        f"named here at most {FALSE_SHARE * 100:.0f} % are false in the mean "
        "(Benjamini and Hochberg, over all disks that were measured).</p>"
    )


def _saved(found: Sequence[Judged], stand: Sequence[str]) -> str:
    """How many disks fewer carry the load of those that gain."""
    carries = [
        judged.entry["carries"] for judged, at in zip(found, stand, strict=True)
        if at == GAINS and judged.entry["carries"] is not None
    ]  # fmt: skip
    if not carries:
        return ""
    saved = sum(1.0 - 1.0 / times for times in carries)
    return (
        f"<p>Disks saved: {saved:,.1f} of {len(carries):,}. Each of them carries "
        f"{min(carries):.2f} to {max(carries):.2f} times its load "
        f"(median {statistics.median(carries):.2f}) with the 99th percentile "
        "of its durable writes and the mean of its reads no worse than those of "
        "the plain drive as recorded; so the load of all fits on so many fewer, as far as its "
        "bytes do.</p>"
    )


def _histogram(found: Sequence[Judged], stand: Sequence[str]) -> str:
    bars = [[0, 0] for _ in range(_BARS)]
    for judged, at in zip(found, stand, strict=True):
        gain = judged.entry["gain"]
        if gain is not None and at != OVERLOADED:
            share = math.log(gain) / math.log(_LARGEST) / 2.0 + 0.5
            bars[min(max(int(share * _BARS), 0), _BARS - 1)][at == GAINS] += 1
    most = max(max(map(sum, bars)), 1)
    out = []
    for nth, (rest, gains) in enumerate(bars):
        left = nth * 20
        for count, below, kind in ((rest, 0, "rest"), (gains, rest, "gains")):
            high, base = 150.0 * count / most, 150.0 * below / most
            out.append(
                f'<rect class="{kind}" x="{left + 1}" y="{160 - base - high:.1f}" width="18" '
                f'height="{high:.1f}"><title>{count}</title></rect>'
            )
    for share, text in ((0.0, "&lt;1/4"), (0.25, "1/2"), (0.5, "1"), (0.75, "2"), (1.0, "&gt;4")):
        out.append(f'<text x="{share * _BARS * 20:.0f}" y="178">{text}</text>')
    return f'<svg viewBox="-20 0 680 184" role="img">{"".join(out)}</svg>'


def _by(
    name: str, found: Sequence[Judged], stand: Sequence[str], of: Callable[[Judged], str]
) -> str:
    by: dict[str, list[tuple[str, float | None]]] = defaultdict(list)
    for judged, at in zip(found, stand, strict=True):
        by[of(judged)].append((at, judged.entry["gain"]))
    rows: list[tuple[Any, ...]] = []
    for group, disks in by.items():
        gains = [gain for at, gain in disks if at == GAINS and gain is not None]
        middle = f"{statistics.median(gains):.2f}" if gains else ""
        over = sum(1 for at, _ in disks if at == OVERLOADED)
        rows.append((group, len(disks), len(gains), middle, over))
    # Where there is most to gain first.
    rows.sort(key=lambda row: (-row[2], -row[1], row[0]))
    head = (name, "disks", "gain", "median gain", "overloaded")
    left = f"<p>and {len(rows) - GROUPS_MAX:,} more</p>" if len(rows) > GROUPS_MAX else ""
    return _table(head, rows[:GROUPS_MAX]) + left


def _table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    def cell(value: Any) -> str:
        shown = f"{value:,}" if isinstance(value, int) else html.escape(str(value))
        return f"<td>{shown}</td>"

    top = "".join(f"<th>{html.escape(name)}</th>" for name in head)
    body = "".join(f"<tr>{''.join(map(cell, row))}</tr>" for row in rows)
    return f"<table><tr>{top}</tr>{body}</table>" if body else "<p>none</p>"


def _rows(
    found: Sequence[Judged], stand: Sequence[str], bad: Sequence[tuple[Disk, str]]
) -> dict[str, list[Any]]:
    """All disks, by columns."""
    rows = [
        (one.disk.host, one.disk.disk, one.model, one.profile.name, at, one.entry["gain"],
         one.entry["gain_low"], one.entry["gain_high"], one.entry["reason"])
        for one, at in zip(found, stand, strict=True)
    ]  # fmt: skip
    rows += [
        (disk.host, disk.disk, disk.model, "", "quarantined", None, None, None, reason)
        for disk, reason in bad
    ]
    names = ("host", "disk", "model", "drive", "group", "gain", "low", "high", "reason")
    columns = zip(*rows, strict=True) if rows else [()] * len(names)
    return {name: list(column) for name, column in zip(names, columns, strict=True)}


def _packed(data: dict[str, list[Any]]) -> str:
    """What the page's script unpacks."""
    text = json.dumps(data, separators=(",", ":")).encode("ascii")
    return base64.b64encode(gzip.compress(text, 6, mtime=0)).decode("ascii")
