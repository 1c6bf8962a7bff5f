"""Which named sizes somebody could have now: quota left, and room left on one node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tenure_core.admission.amounts import Amounts, added_up, fits

Limits = Mapping[str, int | None]
"""The most of each kind; None is no limit."""


@dataclass(frozen=True, slots=True)
class QuotaLeft:
    """One limit and what is taken of it."""

    limit: Limits
    taken: Amounts

    def remaining(self, kind: str) -> int | None:
        """Return what is left of the kind, None where there is no limit."""
        most = self.limit.get(kind, 0)
        return None if most is None else most - self.taken.get(kind, 0)


@dataclass(frozen=True, slots=True)
class NodeRoom:
    """What is free on one node of one pool, by the same ledger that every reader uses."""

    pool: str
    free: Amounts


@dataclass(frozen=True, slots=True)
class PresetAnswer:
    """What is left of the quotas, what of it each pool could give, and which presets fit."""

    remaining: Limits
    pools: Mapping[str, Limits]
    allocatable: Mapping[str, bool]


def check_presets(
    quotas: Sequence[QuotaLeft],
    nodes: Sequence[NodeRoom],
    presets: Mapping[str, Amounts],
    *,
    absent_kind_shows_quota: bool = False,
) -> PresetAnswer:
    """Say what could be had now; a preset must fit the quotas and one single node.

    A pool shows zero for a kind that none of its nodes has; with `absent_kind_shows_quota` it shows
    what is left of the quota, as the ancestor does.
    """
    kinds = sorted({kind for quota in quotas for kind in quota.limit})
    remaining = {kind: _least(quota.remaining(kind) for quota in quotas) for kind in kinds}
    pools: dict[str, Limits] = {}
    for pool in dict.fromkeys(node.pool for node in nodes):
        free = added_up(node.free for node in nodes if node.pool == pool)
        pools[pool] = {
            kind: left
            if absent_kind_shows_quota and kind not in free
            else _least((left, free.get(kind, 0)))
            for kind, left in remaining.items()
        }
    return PresetAnswer(
        remaining,
        pools,
        {
            name: _within(amounts, remaining) and any(fits(amounts, node.free) for node in nodes)
            for name, amounts in presets.items()
        },
    )


def _least(amounts: Iterable[int | None]) -> int | None:
    return min((amount for amount in amounts if amount is not None), default=None)


def _within(wanted: Amounts, limits: Limits) -> bool:
    return all(
        (most := limits.get(kind, 0)) is None or amount <= most for kind, amount in wanted.items()
    )
