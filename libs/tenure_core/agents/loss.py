"""When a silent agent is suspected, when it is lost, and when its observer is suspected instead.

An agent's work ends on the node `fence_ms` after the *sending* of the last beat that was answered;
an observer counts from the *receipt* of the last beat, which is later, and waits `loss_ms`, which
is longer. So no agent is given up while its work can still run, whatever the clocks say: only
lengths are compared, each measured on one host.

The observer itself can be the one that went deaf: it restarted, was paused, or lost its network.
Three rules guard against that. Silence never counts from before the observer's own `floor` (its
start, or its last awakening); an observer that hears nothing at all for a while, not even its own
clock, moves the floor; and when a large share falls silent at once nobody is lost before a second
look a full `loss_ms` later. After the full disruption mode of kubernetes' node lifecycle
controller, and nomad 2574, 3595, 3840 (control-plane trouble is never blamed on agents).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Protocol

from tenure_core.agents.states import AgentState
from tenure_core.timebase import Millis


@dataclass(frozen=True, slots=True)
class LossTiming:
    """The lengths that decide, from the same settings that agents are told.

    `suspect_beats` is how many beats must be missed before an agent is suspected. The observer is
    suspected when more than `crowd_min` agents and more than `crowd_permille` of those with a
    session are suspected at the time that one of them would be lost: agents that fall silent
    together reach the loss time one by one, within a beat, and the first must not go alone.
    """

    heartbeat_ms: Millis
    fence_ms: Millis
    loss_ms: Millis
    suspect_beats: int = 2
    crowd_min: int = 2
    crowd_permille: int = 500

    def __post_init__(self) -> None:
        if not 0 < self.heartbeat_ms * self.suspect_beats < self.fence_ms < self.loss_ms:
            raise ValueError(
                "lengths must grow: heartbeat times suspect_beats < fence < loss, not "
                f"{self.heartbeat_ms} x {self.suspect_beats}, {self.fence_ms}, {self.loss_ms}"
            )

    @property
    def suspect_ms(self) -> Millis:
        """Return how long an agent may be silent before it is suspected.

        Half a period is allowed for the beat to travel.
        """
        return self.heartbeat_ms * self.suspect_beats + self.heartbeat_ms // 2

    def steady_ms(self, suspicions: int) -> Millis:
        """Return how long an agent must beat without a gap before it counts as alive again.

        One period after the first suspicion, and twice as long after each further one, up to 32: an
        agent that flaps stays suspected instead of changing its state with every beat.
        """
        return self.heartbeat_ms << min(5, max(0, suspicions - 1))

    @property
    def forgiving_ms(self) -> Millis:
        """Return how long an agent must have been steady for its suspicions to be forgotten."""
        return self.heartbeat_ms * 64

    @property
    def late_ms(self) -> Millis:
        """Return how long an observer may not have looked at its clock before it doubts itself."""
        return self.fence_ms // 2


class Watched(Protocol):
    """One agent with a session, as its observer sees it."""

    @property
    def agent(self) -> str:
        """Its id."""
        ...

    @property
    def state(self) -> AgentState:
        """ALIVE or SUSPECT, as last stored."""
        ...

    @property
    def contact_ms(self) -> Millis:
        """When its last beat was received, by the observer's own boot clock."""
        ...

    @property
    def steady_since_ms(self) -> Millis:
        """Since when it has beaten without a gap that would have it suspected."""
        ...

    @property
    def suspicions(self) -> int:
        """How often it was suspected of late."""
        ...


@dataclass(frozen=True, slots=True)
class Outlook:
    """What an observer carries from round to round.

    `floor_ms` is the earliest instant from which silence counts, `awake_ms` when the observer last
    looked at its clock, `second_look_ms` when those that fell silent in a crowd may be given up.
    """

    floor_ms: Millis
    awake_ms: Millis
    second_look_ms: Millis | None = None


@dataclass(frozen=True, slots=True)
class Judgement:
    """Whose state changes, and the outlook for the next round. Ids are in order.

    One that is lost in the round in which it is suspected is in both, in that order.
    """

    alive: tuple[str, ...]
    suspect: tuple[str, ...]
    lost: tuple[str, ...]
    outlook: Outlook


def awake(now_ms: Millis, timing: LossTiming, before: Outlook) -> Outlook:
    """Return the outlook of an observer that looks at its clock; call it several times a fence.

    One that has not looked for too long was paused or starved: beats may wait unread.
    """
    late = now_ms - before.awake_ms > timing.late_ms
    return replace(before, awake_ms=now_ms, floor_ms=now_ms if late else before.floor_ms)


def judge(
    now_ms: Millis, watched: Iterable[Watched], timing: LossTiming, before: Outlook
) -> Judgement:
    """Judge every watched agent at one instant. O(agents), plus sorting those that change."""
    outlook = awake(now_ms, timing, before)
    floor_ms = outlook.floor_ms
    alive: list[str] = []
    suspect: list[str] = []
    silent: list[str] = []
    count = hushed = 0
    for each in watched:
        count += 1
        silence_ms = now_ms - max(each.contact_ms, floor_ms)
        if silence_ms < timing.suspect_ms:
            if each.state is AgentState.SUSPECT and each.contact_ms >= floor_ms:
                steady_ms = now_ms - each.steady_since_ms
                if steady_ms >= timing.steady_ms(each.suspicions):
                    alive.append(each.agent)
            continue
        hushed += 1
        if each.state is AgentState.ALIVE:
            suspect.append(each.agent)
        if silence_ms >= timing.loss_ms:
            silent.append(each.agent)
    crowd = hushed > timing.crowd_min and hushed * 1000 > count * timing.crowd_permille
    look_ms = before.second_look_ms if crowd else None
    lost, second_look_ms = silent, look_ms
    if crowd and silent:
        second_look_ms = now_ms + timing.loss_ms if look_ms is None else look_ms
        lost = silent if now_ms >= second_look_ms else []
    return Judgement(
        tuple(sorted(alive)),
        tuple(sorted(suspect)),
        tuple(sorted(lost)),
        replace(outlook, second_look_ms=second_look_ms),
    )
