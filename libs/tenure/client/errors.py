"""What calls raise: the tree of `tenure_core.errors`, and two of our own.

Every error has `reason` (stable, UPPER_SNAKE, listed in docs/errors.md), `message` (a sentence) and
`metadata`; Invalid has all `violations`. A lease that does not come in time raises TimeoutError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenure_core.errors import (
    AlreadyExists,
    Conflict,
    DomainError,
    Exhausted,
    Forbidden,
    Invalid,
    NotFound,
    Stale,
    Unauthenticated,
    Unavailable,
    Violation,
    WrongState,
)
from tenure_runtime.rpc.status import RESUME_TOKEN_EXPIRED, RemoteFailure

if TYPE_CHECKING:
    from tenure.client.lease_info import LeaseInfo

__all__ = [
    "AlreadyExists",
    "Conflict",
    "DomainError",
    "Exhausted",
    "Forbidden",
    "Invalid",
    "LeaseEnded",
    "NotFound",
    "RemoteFailure",
    "Stale",
    "Unauthenticated",
    "Unavailable",
    "Violation",
    "WatchExpired",
    "WrongState",
]


class LeaseEnded(WrongState):
    """The lease ended otherwise than was waited for; `reason` is its own, `lease` how it was."""

    def __init__(self, lease: LeaseInfo) -> None:
        state = lease.state.name.lower()
        code = "" if lease.exit_code is None else f" with exit code {lease.exit_code}"
        super().__init__(
            lease.reason or lease.state.name,
            f"lease {lease.id} {state}{code}: {lease.sentence}",
            lease=lease.id,
        )
        self.lease = lease


class WatchExpired(Stale):
    """Changes were missed: the token is older than what the server keeps. List, then watch anew."""

    def __init__(self, message: str) -> None:
        super().__init__(RESUME_TOKEN_EXPIRED, message)
