"""How far a call is, shown by tqdm."""

from __future__ import annotations

import contextlib
import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextlib.contextmanager
def shown(progress: bool, total: int | None) -> Iterator[Callable[[int], None] | None]:
    """Who is to be told how many requests were replayed, of ``total`` if that is known; None if
    nobody asked for it.

    :raises ImportError: if tqdm is not installed
    """
    if not progress:
        yield None
        return
    try:
        tqdm = importlib.import_module("tqdm.auto")
    except ImportError as error:
        raise ImportError("progress needs tqdm: pip install tqdm") from error
    with tqdm.tqdm(total=total, unit=" requests", unit_scale=True) as bar:

        def show(done: int) -> None:
            bar.update(done - bar.n)

        yield show
        if total is not None:
            show(total)
