"""Puts secrets into commands that start work, sealed by admission for the agents in question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tenure_core.agents.work import Verb
from tenure_core.errors import DomainError
from tenure_runtime.telemetry.logging import get_logger
from tenure_scheduler.entries import Dispatch
from tenure_scheduler.mirror import PoolMirror
from tenure_scheduler.ports import LeaseBook


async def with_secrets(
    commands: Sequence[Dispatch], mirror: PoolMirror, book: LeaseBook
) -> tuple[list[Dispatch], list[Dispatch]]:
    """Return the commands with their secrets, and those that cannot be sent without them yet."""
    ready = [each for each in commands if not _needs(each)]
    withheld: list[Dispatch] = []
    by_lease: dict[str, list[Dispatch]] = {}
    for command in commands:
        if _needs(command):
            by_lease.setdefault(command.lease.lease.id, []).append(command)
    for lease, starts in by_lease.items():
        agents = [mirror.agents.get(each.node) for each in starts]
        keys = [agent.sealing_key for agent in agents if agent is not None and agent.sealing_key]
        sealed = await _sealed(lease, keys, book) if len(keys) == len(starts) else []
        if not sealed:
            withheld += starts
        pairs = zip(starts, sealed, strict=False)
        ready += [replace(command, sealed_secrets=each) for command, each in pairs]
    return ready, withheld


async def _sealed(lease: str, keys: Sequence[bytes], book: LeaseBook) -> list[bytes]:
    """Return a lease's secrets for each key; nothing when they cannot be had now."""
    try:
        return await book.seal(lease, keys)
    except DomainError as error:
        get_logger().warning("secrets.withheld", lease=lease, reason=error.reason)
        return []


def _needs(command: Dispatch) -> bool:
    return command.verb is Verb.START and bool(command.lease.lease.spec.work.secrets)
