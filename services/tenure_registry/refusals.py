"""The refusals that both stores give, in the same words."""

from __future__ import annotations

from tenure_core.errors import NotFound, Stale


def stale_epoch(scope: str, epoch: int, stored: int) -> Stale:
    """Return the error of a leader that was superseded."""
    return Stale(
        "STALE_EPOCH",
        f"{scope} is led under epoch {stored}; {epoch} was superseded.",
        scope=scope,
        epoch=epoch,
        current=stored,
    )


def agent_not_found(agent: str) -> NotFound:
    """Return the error of an agent that never connected."""
    return NotFound("AGENT_NOT_FOUND", f"No agent {agent} has ever connected.", agent=agent)


def allocation_not_found(lease: str, attempt: int, rank: int) -> NotFound:
    """Return the error of a slot that no command was ever stored for, or of another's slot."""
    return NotFound(
        "ALLOCATION_NOT_FOUND",
        f"Lease {lease} has no slot {rank} on any agent here.",
        lease=lease,
        attempt=attempt,
        rank=rank,
    )
