"""Pools and the policies by which they are planned, as values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from tenure_core.errors import DomainError, NotFound
from tenure_core.policies.backfilling import Backfilling
from tenure_core.policies.bundle import HALF_LIFE_MS, Overheads, Policies
from tenure_core.policies.ordering import (
    AGE_MAX_MS,
    FIFO,
    Ordering,
    OrderingTerms,
    parse_ordering,
)
from tenure_core.timebase import Millis
from tenure_scheduler.policy_choices import (
    ADMISSIONS,
    PLACEMENTS,
    PREEMPTIONS,
    WORDS,
    Choices,
    Policy,
    warn_of_missing,
)

DEFAULT: Final = "default"
DEPTH_DEFAULT: Final = 10_000


@dataclass(frozen=True, slots=True)
class Pool:
    """Nodes that are planned together by one leader."""

    id: str
    description: str = ""
    policy: str = DEFAULT
    cordoned: bool = False
    version: int = 1
    created: Millis = 0


@dataclass(frozen=True, slots=True)
class PoolPolicy:
    """How a pool is planned, in the words of the contract; `weights` of owners and projects."""

    id: str
    backfilling: str = "easy"
    promises: int = 1
    depth: int = DEPTH_DEFAULT
    preemption: str = "suspend"
    ordering: str = "fifo"
    placement: str = "pack"
    suspend_ms: Millis = 0
    resume_ms: Millis = 0
    version: int = 1
    weights: dict[str, int] = field(default_factory=dict)
    age_ms: Millis = AGE_MAX_MS
    half_life_ms: Millis = HALF_LIFE_MS
    admission: str = "all"

    def bundle(self, *, falls_back: bool = False) -> Policies:
        """Return what the planner is told.

        Raises NotFound POLICY_NOT_INSTALLED for a policy that no package installed here offers;
        with `falls_back`, what is missing is planned by the default of its kind (nobody is
        preempted) and warned of.
        """

        def chosen(choices: Choices[Policy], name: str) -> Policy:
            return choices.or_default(name) if falls_back else choices[name]

        backfilling = {
            "off": Backfilling.OFF,
            "easy": Backfilling.EASY,
            "conservative": Backfilling.CONSERVATIVE,
            "intermediate": Backfilling.intermediate(self.promises),
        }[self.backfilling]
        return Policies(
            backfilling=backfilling,
            ordering=self._ordering(falls_back=falls_back),
            host_selection=chosen(PLACEMENTS, self.placement),
            preemption=chosen(PREEMPTIONS, self.preemption),
            overheads=Overheads(self.suspend_ms, self.resume_ms),
            depth_max=self.depth,
            half_life_ms=self.half_life_ms,
            admission=chosen(ADMISSIONS, self.admission),
        )

    def _ordering(self, *, falls_back: bool) -> Ordering:
        terms = OrderingTerms(self.weights, self.age_ms)
        try:
            return parse_ordering(self.ordering, terms, WORDS.find)
        except (ValueError, DomainError) as error:
            if falls_back:
                warn_of_missing("ordering", self.ordering, "fifo", error)
                return FIFO
            if isinstance(error, DomainError):
                raise
            raise NotFound(
                "POLICY_NOT_INSTALLED", str(error), policy=self.ordering, kind="ordering"
            ) from None


@dataclass(frozen=True, slots=True)
class PoolBook:
    """All pools and policies at one moment."""

    pools: dict[str, Pool] = field(default_factory=dict)
    policies: dict[str, PoolPolicy] = field(default_factory=dict)
