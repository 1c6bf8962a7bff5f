"""One pass over one pool: who waits in which order, who may start, and where.

    order → for each lease: eligible? → place (or let others make room) → charge → next

A lease that is refused or incompatible concerns itself only. One that waits for room does not stop
the pass: it claims the nodes that it waits for (`claims`), so it cannot starve, and leases that do
not compete for what it claims go on. A lease that the whole pool could not hold is told so and
blocks nobody. The pass is a function of its input: nodes are looked at by name, not in the order
in which they were listed.

`ANCESTOR` reproduces the ancestor's pass: strict blocking by the first lease that finds no room,
and the other values that each argument names.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

from tenure_core.admission.claims import Claim, claim_for, drained, keep
from tenure_core.admission.nodes import Node, Room
from tenure_core.admission.ordering import Ordering, OrderingFacts, ordered
from tenure_core.admission.outcomes import Obstacle, Placed, Unplaced
from tenure_core.admission.placement import PlacementTerms
from tenure_core.admission.placer import Placer
from tenure_core.admission.predicates import (
    Limits,
    Refusal,
    RunningStandings,
    Standings,
    refusals,
)
from tenure_core.admission.preemption import Preemption
from tenure_core.admission.strategies import Chooser, StrategyTerms
from tenure_core.admission.waiting import WaitingLease
from tenure_core.timebase import Millis


class Blocking(Enum):
    """What a lease that waits for room means for those behind it."""

    COMPETITORS = "COMPETITORS"
    """They may have everything that it does not claim."""
    ALL = "ALL"
    """The pass ends."""


@dataclass(frozen=True, slots=True)
class PassRules:
    """The rules of a pool. `claims_max` leases that wait for room are protected, in order."""

    blocking: Blocking = Blocking.COMPETITORS
    claims_max: int = 1
    raised_kinds_only: bool = True
    nodes_by_name: bool = True
    placement: PlacementTerms = field(default_factory=PlacementTerms)


ANCESTOR: Final = PassRules(
    blocking=Blocking.ALL,
    claims_max=0,
    raised_kinds_only=False,
    nodes_by_name=False,
    placement=PlacementTerms(
        all_members_count=False,
        relative_shortage=False,
        search_steps=0,
        share_claims=False,
        spare_needless=False,
        credit_members=False,
    ),
)
"""The rules of the ancestor, faults included."""


@dataclass(frozen=True, slots=True)
class PassInput:
    """Everything that a pass looks at: one consistent snapshot."""

    nodes: Sequence[Node]
    waiting: Sequence[WaitingLease]
    now: Millis = 0
    ordering: Ordering = Ordering.FIFO
    facts: OrderingFacts = field(default_factory=OrderingFacts)
    strategy: StrategyTerms = field(default_factory=StrategyTerms)
    turn: int = 0
    standings: Standings = field(default_factory=Standings)
    limits: Limits = field(default_factory=Limits)
    preemption: Preemption | None = None
    standing_claims: Mapping[str, Claim] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PassResult:
    """What became of every waiting lease, each in exactly one of these, in the order tried.

    `held` are promised room that others still use. `claims` are to be passed to the next pass.
    """

    sequence: tuple[str, ...]
    placed: Mapping[str, Placed]
    held: Mapping[str, Placed]
    refused: Mapping[str, tuple[Refusal, ...]]
    unplaced: Mapping[str, Unplaced]
    not_attempted: tuple[str, ...]
    claims: Mapping[str, Claim]
    turn: int

    @property
    def still_waiting(self) -> tuple[str, ...]:
        """Return the leases that stay in the queue, in order."""
        return tuple(
            lease for lease in self.sequence if lease not in self.placed and lease not in self.held
        )


def run_pass(given: PassInput, rules: PassRules) -> PassResult:
    """Decide one pass. Deterministic; the cost is about leases x nodes."""
    return _Pass(given, rules).run()


class _Pass:
    def __init__(self, given: PassInput, rules: PassRules) -> None:
        nodes = given.nodes
        if rules.nodes_by_name:
            nodes = sorted(nodes, key=lambda node: node.id)
        self._given = given
        self._rules = rules
        self._chooser = Chooser(given.strategy, given.turn)
        self._placer = Placer(Room(nodes), self._chooser, rules.placement, given.preemption)
        self._standings = RunningStandings(given.standings)
        self._empty = drained(nodes)
        self._possible: dict[Hashable, bool] = {}
        self._placed: dict[str, Placed] = {}
        self._held: dict[str, Placed] = {}
        self._refused: dict[str, tuple[Refusal, ...]] = {}
        self._unplaced: dict[str, Unplaced] = {}
        self._claims: dict[str, Claim] = {}

    def run(self) -> PassResult:
        sequence = ordered(self._given.waiting, self._given.ordering, self._given.facts)
        not_attempted: list[str] = []
        for place, lease in enumerate(sequence):
            if not self._goes_on_after(lease):
                not_attempted = [later.id for later in sequence[place + 1 :]]
                break
        return PassResult(
            sequence=tuple(lease.id for lease in sequence),
            placed=self._placed,
            held=self._held,
            refused=self._refused,
            unplaced=self._unplaced,
            not_attempted=tuple(not_attempted),
            claims=self._claims,
            turn=self._chooser.turn,
        )

    def _goes_on_after(self, lease: WaitingLease) -> bool:
        """Decide the lease; False when the pass ends with it."""
        refused = refusals(
            lease,
            self._given.now,
            self._standings.now,
            self._given.limits,
            raised_kinds_only=self._rules.raised_kinds_only,
        )
        if refused:
            self._refused[lease.id] = tuple(refused)
            return True
        found = self._placer.place(lease)
        if isinstance(found, Placed):
            (self._held if found.held else self._placed)[lease.id] = found
            self._standings.add(lease)
            return True
        if found.obstacle is not Obstacle.EXHAUSTED:
            self._unplaced[lease.id] = found
            return True
        return self._waits_for_room(lease, found)

    def _waits_for_room(self, lease: WaitingLease, found: Unplaced) -> bool:
        self._unplaced[lease.id] = found
        if self._rules.blocking is Blocking.ALL:
            return False
        if len(self._claims) >= self._rules.claims_max and lease.shape in self._possible:
            possible = self._possible[lease.shape]
        else:
            claim = claim_for(
                lease,
                self._placer.room,
                self._empty,
                self._chooser,
                self._rules.placement,
                self._given.standing_claims.get(lease.id),
            )
            possible = self._possible[lease.shape] = claim is not None
            if claim is not None and len(self._claims) < self._rules.claims_max:
                self._claims[lease.id] = claim
                keep(claim, self._placer.room)
        if not possible:
            self._unplaced[lease.id] = replace(found, obstacle=Obstacle.IMPOSSIBLE)
        return True
