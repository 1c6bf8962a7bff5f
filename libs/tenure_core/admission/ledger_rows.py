"""The rows of the slot ledger: a node's account, a lease, and its members."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from tenure_core.admission.amounts import Amounts
from tenure_core.admission.lifecycle import Stage


class Bucket(Enum):
    """Where a member's amounts are counted on its node."""

    RESERVED = "RESERVED"
    HELD = "HELD"
    USED = "USED"


class Report(Enum):
    """What an agent says about a member."""

    PULLING = "PULLING"
    STARTING = "STARTING"
    ACTIVE = "ACTIVE"
    ENDED = "ENDED"
    CANCELLED = "CANCELLED"


@dataclass(slots=True)
class NodeAccount:
    """The capacity of one node and its three buckets."""

    capacity: Amounts
    buckets: dict[Bucket, dict[str, int]] = field(
        default_factory=lambda: {bucket: {} for bucket in Bucket}
    )

    def amount(self, bucket: Bucket, kind: str) -> int:
        """Return what one bucket has of the kind."""
        return self.buckets[bucket].get(kind, 0)


@dataclass(slots=True)
class MemberRow:
    """One member: what it asks for and where, and the bucket that counts it now, if any.

    `planned` is the node that the pass chose; `node` is written once something is counted there and
    stays afterwards as a fact about the attempt.
    """

    planned: str
    amounts: Amounts
    stage: Stage = Stage.WAITING
    node: str | None = None
    attempt: int = 1
    bucket: Bucket | None = None
    counted: Amounts = field(default_factory=dict)


@dataclass(slots=True)
class LeaseRow:
    """One lease and its members, by rank."""

    members: list[MemberRow]
    stage: Stage = Stage.WAITING


@dataclass(frozen=True, slots=True)
class Overreport:
    """An agent said that a member uses more than was reserved for it."""

    lease: str
    rank: int
    excess: Amounts
