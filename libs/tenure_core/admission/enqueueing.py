"""What a request must satisfy to be let into the queue at all. Every violation is reported.

These limits gate the *queue*; how many leases may run, and with how much, is decided when one is to
be started (`predicates`). A limit of None, or of zero or less where a count is meant, is no limit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from tenure_core.admission.amounts import Amounts, added_up

RESERVED_PORTS: Final = frozenset({2000, 2001, 2200, 7681})
"""Ports that the work's own service processes listen on."""

PRIORITY_DEFAULT: Final = 10
"""The priority of who names none, unless the policy allows less."""


class EnqueueRule(Enum):
    """The rules, in the order in which they are tried."""

    MEMBER_COUNT = "MEMBER_COUNT"
    PENDING_COUNT = "PENDING_COUNT"
    PENDING_AMOUNTS = "PENDING_AMOUNTS"
    PRIORITY = "PRIORITY"
    IMAGE_MINIMUM = "IMAGE_MINIMUM"
    IMAGE_MAXIMUM = "IMAGE_MAXIMUM"
    REQUIRED_KINDS = "REQUIRED_KINDS"
    REQUESTED_KINDS_SERVED = "REQUESTED_KINDS_SERVED"
    IMAGE_KINDS_SERVED = "IMAGE_KINDS_SERVED"
    PORTS = "PORTS"


QUOTA_RULES: Final = frozenset(
    {
        EnqueueRule.MEMBER_COUNT,
        EnqueueRule.PENDING_COUNT,
        EnqueueRule.PENDING_AMOUNTS,
        EnqueueRule.PRIORITY,
    }
)
"""Refusals by these are about how much somebody may have; the others about a wrong request."""


@dataclass(frozen=True, slots=True)
class MemberAsk:
    """What one member asks for."""

    amounts: Amounts
    shared_memory: int = 0
    ports: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class QueuePolicy:
    """The limits on what somebody may put into the queue."""

    members_max: int | None = None
    pending_max: int | None = None
    pending_amounts_max: Amounts = field(default_factory=dict)
    priority_max: int | None = None


@dataclass(frozen=True, slots=True)
class ImageBounds:
    """What the image declares; kinds that are not known here do not count."""

    least: Amounts = field(default_factory=dict)
    most: Amounts = field(default_factory=dict)
    service_ports: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class EnqueueRequest:
    """A request with all that the rules look at.

    `served` are the kinds that some node of the pool has, None where nobody asked.
    """

    members: Sequence[MemberAsk]
    priority: int | None = None
    policy: QueuePolicy = field(default_factory=QueuePolicy)
    pending: int = 0
    pending_amounts: Amounts = field(default_factory=dict)
    image: ImageBounds = field(default_factory=ImageBounds)
    known_kinds: frozenset[str] | None = None
    served: frozenset[str] | None = None
    required: frozenset[str] = frozenset()
    memory_kind: str = "memory"


def effective_priority(request: EnqueueRequest) -> int:
    """Return the priority asked for; who names none gets the default, or the cap if that is less.

    The ancestor refuses a request without priority when its own default is above the cap.
    """
    if request.priority is not None:
        return request.priority
    cap = request.policy.priority_max
    return PRIORITY_DEFAULT if cap is None else min(PRIORITY_DEFAULT, cap)


def refused_by(request: EnqueueRequest) -> list[EnqueueRule]:
    """Return every rule that the request breaks, in order; none means that it may be queued."""
    checks: Mapping[EnqueueRule, bool] = {
        EnqueueRule.MEMBER_COUNT: _over(len(request.members), request.policy.members_max),
        EnqueueRule.PENDING_COUNT: _over(request.pending + 1, request.policy.pending_max),
        EnqueueRule.PENDING_AMOUNTS: _pending_amounts(request),
        EnqueueRule.PRIORITY: _priority(request),
        EnqueueRule.IMAGE_MINIMUM: any(_below(ask, request) for ask in request.members),
        EnqueueRule.IMAGE_MAXIMUM: any(_above(ask, request) for ask in request.members),
        EnqueueRule.REQUIRED_KINDS: _lacks_required(request),
        EnqueueRule.REQUESTED_KINDS_SERVED: any(
            _unserved(ask.amounts, request) for ask in request.members
        ),
        EnqueueRule.IMAGE_KINDS_SERVED: _unserved(_known(request.image.least, request), request),
        EnqueueRule.PORTS: _bad_ports(request),
    }
    return [rule for rule in EnqueueRule if checks[rule]]


def _over(count: int, limit: int | None) -> bool:
    return limit is not None and 0 < limit < count


def _pending_amounts(request: EnqueueRequest) -> bool:
    asked = added_up(ask.amounts for ask in request.members)
    return any(
        request.pending_amounts.get(kind, 0) + asked.get(kind, 0) > most
        for kind, most in request.policy.pending_amounts_max.items()
    )


def _priority(request: EnqueueRequest) -> bool:
    cap = request.policy.priority_max
    return cap is not None and effective_priority(request) > cap


def _known(amounts: Amounts, request: EnqueueRequest) -> Amounts:
    if request.known_kinds is None:
        return amounts
    return {kind: amount for kind, amount in amounts.items() if kind in request.known_kinds}


def _below(ask: MemberAsk, request: EnqueueRequest) -> bool:
    memory = request.memory_kind
    if 0 < ask.shared_memory >= ask.amounts.get(memory, 0):
        return True
    return any(
        ask.amounts.get(kind, 0) < least + (ask.shared_memory if kind == memory else 0)
        for kind, least in _known(request.image.least, request).items()
    )


def _above(ask: MemberAsk, request: EnqueueRequest) -> bool:
    return any(
        ask.amounts.get(kind, 0) > most
        for kind, most in _known(request.image.most, request).items()
    )


def _lacks_required(request: EnqueueRequest) -> bool:
    return any(
        ask.amounts.get(kind, 0) <= 0 for ask in request.members for kind in request.required
    )


def _unserved(amounts: Amounts, request: EnqueueRequest) -> bool:
    if request.served is None:
        return False
    return any(amount > 0 and kind not in request.served for kind, amount in amounts.items())


def _bad_ports(request: EnqueueRequest) -> bool:
    taken = RESERVED_PORTS | request.image.service_ports
    return any(port in taken for ask in request.members for port in ask.ports)
