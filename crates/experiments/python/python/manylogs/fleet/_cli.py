"""``manylogs-fleet``, which ``manylogs fleet`` starts."""

from __future__ import annotations

import argparse
import os
import re
import sys
from typing import TYPE_CHECKING

from .._errors import Error
from .._manylogs import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def _size(text: str) -> int:
    found = re.fullmatch(r"(\d+)([KMGT]?)i?B?", text.strip().upper())
    if not found:
        raise argparse.ArgumentTypeError(f"expected a size such as 512M, found {text!r}")
    return int(found[1]) * _UNITS[found[2]]


def _count(text: str) -> int:
    if not re.fullmatch(r"\d+", text.strip()) or int(text) == 0:
        raise argparse.ArgumentTypeError(f"expected 1 or more, found {text!r}")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="manylogs-fleet", description="Judges a fleet of disks: docs/fleet.md."
    )
    parser.add_argument("inventory")
    parser.add_argument("--out", required=True)
    parser.add_argument("--drives")
    parser.add_argument("--policies", default="nologging,mlb")
    parser.add_argument("--effort", choices=("screen", "advise"), default="screen")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--rate", default="1")
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--limit", type=_count)
    parser.add_argument("--plan", action="store_true")
    parser.add_argument("--scheduler")
    parser.add_argument("--insecure", action="store_true")
    parser.add_argument("--workers", type=_count)
    parser.add_argument("--worker-memory", type=_size, default="512M")
    parser.add_argument("--version", action="version", version=__version__)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Judges a fleet, and returns the exit code: 0, or 2 if some traces are in quarantine."""
    args = _parser().parse_args(arguments)
    from ._computing import Options
    from ._fleet import Fleet

    options = Options(
        inventory=args.inventory,
        out=args.out,
        drives=args.drives,
        policies=_policies(args.policies),
        effort=args.effort,
        seeds=args.seeds,
        rate=args.rate,
        fit=args.fit,
        limit=args.limit,
        scheduler=args.scheduler,
        insecure=args.insecure,
        workers=args.workers or os.cpu_count() or 1,
        memory=args.worker_memory,
    )
    try:
        fleet = Fleet(options)
        return fleet.print_plan() if args.plan else fleet.run()
    except Error as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except OSError as error:
        # The disk below --out is full, or its rights changed.
        print(f"error: {args.out}: {error}: the same command goes on", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted: the same command goes on", file=sys.stderr)
        return 130


def _policies(text: str) -> list[str]:
    """Policies by commas; those behind a colon belong to the options of one."""
    found: list[str] = []
    for word in text.split(","):
        if found and "=" in word and ":" not in word:
            found[-1] += f",{word}"
        else:
            found.append(word)
    return found
