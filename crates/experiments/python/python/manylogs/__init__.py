"""Manylogs: fast small durable writes beside fast streams on disks that spin.

Replays of traces on modelled drives, advice, and sweeps, as the program ``manylogs`` has them::

    import manylogs
    trace = manylogs.read_trace("server.trace")
    result = manylogs.replay(trace, drive="exos-x20", policies=["nologging", "mlb"])
    print(result)
    print(manylogs.advise(trace))
"""

from ._calls import advise, replay, sweep
from ._drives import Drive, drives
from ._errors import Error, Panic
from ._manylogs import Logs, Write, __version__
from ._policy import Policy
from ._results import Advice, PolicyResult, Replay, Sweep
from ._tables import Table, Trace, read_trace

__all__ = [
    "Advice",
    "Drive",
    "Error",
    "Logs",
    "Panic",
    "Policy",
    "PolicyResult",
    "Replay",
    "Sweep",
    "Table",
    "Trace",
    "Write",
    "__version__",
    "advise",
    "drives",
    "read_trace",
    "replay",
    "sweep",
]
