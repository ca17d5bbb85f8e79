"""Fleets: which of many disks gain by a volume, which do not, and why.

``manylogs-fleet`` (or ``manylogs fleet``) judges an inventory of traces on Dask workers; see
docs/fleet.md. In Python::

    from manylogs import fleet
    fleet.main(["disks.csv", "--out", "fleet", "--workers", "4"])

>>> from manylogs import fleet
>>> len(fleet.tasks_of([fleet.Work("a", 2.0), fleet.Work("b", 9.0), fleet.Work("c", 30.0)]))
2
"""

from ._cli import main
from ._planner import Work, busy_share, tasks_of

__all__ = ["Work", "busy_share", "main", "tasks_of"]
