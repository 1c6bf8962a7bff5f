"""What a leader tells the agents: the commands that the state of a lease implies.

A leader that takes over sends them again; their ids make a repeat harmless.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tenure_core.enactment.facts import Facts
from tenure_core.enactment.ranks import RankState
from tenure_core.enactment.steps import runs_of, with_losses
from tenure_core.leases.states import LeaseState

S = LeaseState


class Verb(Enum):
    """What an agent is told to do with a slot."""

    START = "start"
    SUSPEND = "suspend"
    RESUME = "resume"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class CommandWish:
    """Tell the agent of `node` to do something with one slot; `number` tells repeats apart."""

    rank: int
    node: str
    verb: Verb
    number: int = 0


def implied_commands(facts: Facts, state: LeaseState) -> tuple[CommandWish, ...]:
    """Return what the agents must have been told for the lease to be in `state`, where it matters.

    A slot that has done it, or ended, is left out; a slot that nobody heard of is told to stop too,
    for its START may be on its way.
    """
    number = facts.lease.preemptions
    if state is S.STARTING:
        runs = {row.rank: row.node for row in runs_of(facts)}
        placed = runs or {p.rank: p.node for p in facts.lease.placements}
        wanted = [CommandWish(rank, node, Verb.START) for rank, node in placed.items()]
        return tuple(wish for wish in wanted if wish.rank not in facts.ranks)
    verbs = {
        S.SUSPENDING: (Verb.SUSPEND, RankState.RUNNING),
        S.RESUMING: (Verb.RESUME, RankState.SUSPENDED),
        S.STOPPING: (Verb.STOP, None),
        S.CANCELLING: (Verb.STOP, None),
    }
    if state not in verbs:
        return ()
    verb, before = verbs[state]
    ranks = with_losses(facts)
    return tuple(
        CommandWish(p.rank, p.node, verb, number)
        for p in facts.lease.placements
        if (before is None and (p.rank not in ranks or not ranks[p.rank].ended))
        or (p.rank in ranks and ranks[p.rank].state is before)
    )
