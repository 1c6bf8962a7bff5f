"""The tree of expected failures; everything else that is raised is a bug.

    DomainError
    ├── Invalid             the request is malformed: all violations at once
    ├── NotFound            the thing named does not exist, or the caller may not know that it does
    ├── AlreadyExists       the name is taken by something else
    ├── Conflict            the caller's view (etag, version) is old: read again, decide again
    ├── WrongState          the thing exists but its state does not allow this
    ├── Exhausted           capacity, quota or rate is used up, now or for ever
    ├── Stale               an epoch, session or token has been superseded: step down or start over
    ├── Unauthenticated     nobody known is calling
    ├── Forbidden           the caller is known and may not
    └── Unavailable         a neighbour is away or this replica cannot answer: try again

A reason is UPPER_SNAKE, at most 63 characters, never changes its meaning, and is listed in
`docs/errors.md`. `tenure_runtime.rpc.status` is the only place that maps a kind to a gRPC status.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing wrong with one field of a request.

    `field` is the path as the caller wrote it (`lease.terms.advance.start_time`), `reason` a
    stable UPPER_SNAKE code, `description` a sentence that says what would be right.
    """

    field: str
    reason: str
    description: str


class DomainError(Exception):
    """An expected failure with a stable reason, a sentence for people, and facts for machines."""

    def __init__(self, reason: str, message: str, /, **metadata: object) -> None:
        assert reason and reason == reason.upper() and len(reason) <= 63, reason
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.metadata: Mapping[str, str] = {key: str(value) for key, value in metadata.items()}


class Invalid(DomainError):
    """The request is malformed. Carries every violation found, not the first."""

    def __init__(self, violations: Sequence[Violation], reason: str = "INVALID_REQUEST") -> None:
        assert violations
        first = violations[0]
        more = f" (and {len(violations) - 1} more)" if len(violations) > 1 else ""
        super().__init__(reason, f"{first.field}: {first.description}{more}")
        self.violations = tuple(violations)


class NotFound(DomainError):
    """What was named does not exist, or the caller may not know that it does."""


class AlreadyExists(DomainError):
    """The name is taken by something else."""


class Conflict(DomainError):
    """The caller's view is old: read again and decide again."""


class WrongState(DomainError):
    """The thing exists, but its state does not allow this."""


class Exhausted(DomainError):
    """Capacity, quota or rate is used up. `retry_after_ms` says when trying again may help."""

    def __init__(
        self, reason: str, message: str, /, *, retry_after_ms: int | None = None, **metadata: object
    ) -> None:
        super().__init__(reason, message, **metadata)
        self.retry_after_ms = retry_after_ms


class Stale(DomainError):
    """An epoch, a session or a resume token has been superseded."""


class Unauthenticated(DomainError):
    """Nobody known is calling."""


class Forbidden(DomainError):
    """The caller is known and may not do this."""


class Unavailable(DomainError):
    """A neighbour is away, or this replica cannot answer. Trying again may help."""

    def __init__(
        self, reason: str, message: str, /, *, retry_after_ms: int | None = None, **metadata: object
    ) -> None:
        super().__init__(reason, message, **metadata)
        self.retry_after_ms = retry_after_ms
