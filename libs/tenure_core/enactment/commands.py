"""What a leader tells the agents: the commands that the state of a lease implies.

A leader that takes over sends them again; their ids make a repeat harmless.
"""

from __future__ import annotations

from dataclasses import dataclass

from tenure_core.agents.work import Verb
from tenure_core.enactment.facts import Facts
from tenure_core.enactment.ranks import RankState
from tenure_core.enactment.steps import runs_of, with_losses
from tenure_core.leases.states import LeaseState

S = LeaseState


@dataclass(frozen=True, slots=True)
class CommandWish:
    """Tell the agent of `node` to do something with one slot; `number` tells repeats apart."""

    rank: int
    node: str
    verb: Verb
    number: int = 0


def implied_commands(facts: Facts, state: LeaseState) -> tuple[CommandWish, ...]:
    """Return what the agents must have been told for the lease to be in `state`, where it matters.

    A slot that has done it, or ended, is left out. One that is not booked any more is not started;
    one that nobody heard of is told to stop too, for its START may be on its way.
    """
    number = facts.lease.preemptions
    if state is S.STARTING:
        booked = {(row.rank, row.node) for row in runs_of(facts) if not row.displaced}
        return tuple(
            CommandWish(p.rank, p.node, Verb.START)
            for p in facts.lease.placements
            if p.rank not in facts.ranks and (p.rank, p.node) in booked
        )
    verbs = {
        S.SUSPENDING: (Verb.SUSPEND, RankState.RUNNING),
        S.RESUMING: (Verb.RESUME, RankState.SUSPENDED),
        S.STOPPING: (Verb.STOP, None),
        S.CANCELLING: (Verb.STOP, None),
    }
    if state not in verbs or facts.lease.hold_expires is not None:
        # No agent ever heard of a lease that was only held.
        return ()
    verb, before = verbs[state]
    ranks = with_losses(facts)
    return tuple(
        CommandWish(p.rank, p.node, verb, number)
        for p in facts.lease.placements
        if (before is None and (p.rank not in ranks or not ranks[p.rank].ended))
        or (p.rank in ranks and ranks[p.rank].state is before)
    )
