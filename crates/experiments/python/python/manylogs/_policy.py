"""Policies of your own."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Union

from ._errors import Error

if TYPE_CHECKING:
    from ._manylogs import Logs, Write

__all__ = ["Policy", "PolicyLike", "as_asked"]


class Policy:
    """A policy of your own: which small writes are logged, and where.

    A subclass has one of the methods, or both; what it has not, the volume does. The base class
    has the volume's own policy, in Python. :func:`replay` takes an object among its policies. Each
    replay works on a deep copy of it, so that replays of several seeds do not meet.

    >>> import manylogs
    >>> class OnlyDurable(manylogs.Policy):
    ...     "Logs what must be durable at once."
    ...     def logs(self, request):
    ...         return request.fua
    >>> r = manylogs.replay("synthetic", policies=["nologging", OnlyDurable()], fit=True, seeds=1)
    >>> r.policies, r["OnlyDurable"]["logged_writes"] > 0
    (['nologging', 'OnlyDurable'], True)
    """

    #: What results call it; the name of the class if it is empty.
    name: str = ""
    #: The policy whose volume it is, with its settings, as ``"mlb:threshold=128K"``.
    base: str = "mlb"

    def logs(self, request: Write) -> bool:
        """Whether a write is logged. Asked for each that is no longer than the threshold of
        :attr:`base`; longer ones go home.

        :param request: its ``lba``, ``sectors`` and ``fua``, and where the ``head`` is
        """
        return True

    def place(self, head: int, logs: Logs) -> int | None:
        """The number of the log to which the next record goes: one of ``logs``.

        :param head: the address at which the last request ended that was not logged
        :param logs: those that take the record, to be looked at only during the call
        """
        below, above = logs.around(head)
        if below is None:
            # With neither there are only logs that are kept for what has nowhere else to go.
            return above if above is not None else _nearest(head, logs)
        if above is None:
            return below
        near = abs(logs.tail(below) - head) <= abs(logs.tail(above) - head)
        return below if near else above

    def begin(self, seed: int) -> None:
        """A replay begins, from this seed of all that is random."""

    def _begin(self, seed: int) -> Policy:
        own = copy.deepcopy(self)
        own.begin(seed)
        return own

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


def _nearest(head: int, logs: Logs) -> int | None:
    return min(logs, key=lambda log: abs(logs.start(log) - head), default=None)


#: What a call takes as a policy.
PolicyLike = Union[str, Policy]

#: A policy as the native part takes it: see crates/experiments/python/src/own.rs.
Asked = Union[str, "tuple[str, str, Policy, bool, bool]"]


def as_asked(policy: PolicyLike) -> Asked:
    """The policy as the native part takes it.

    :raises Error: if it is neither a text nor a policy
    """
    if isinstance(policy, str):
        return policy
    if not isinstance(policy, Policy):
        message = f"policies: expected text or a manylogs.Policy, found {policy!r}"
        raise Error(message, exit_code=2)
    kind = type(policy)
    own = [getattr(kind, method) is not getattr(Policy, method) for method in ("logs", "place")]
    return policy.name or kind.__name__, policy.base, policy, own[0], own[1]
