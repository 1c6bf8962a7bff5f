"""Sets the gauges of the pools that this replica leads, from what their leaders know anyway.

Called when somebody reads the metrics: nothing is counted in between. O(leases + reservations).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tenure_core.leases.states import ENDED, WAITING, LeaseState
from tenure_core.resources import ResourceVector
from tenure_core.slots.operations import NodeState
from tenure_core.timebase import Millis
from tenure_runtime.telemetry.metrics import Gauge
from tenure_scheduler import metrics
from tenure_scheduler.leader import PoolLeader, Reign

UNPLANNED = "NOT_PLANNED"
"""The reason of a lease that no plan has looked at yet."""

Values = dict[tuple[str, ...], float]


def observe(leaders: Iterable[PoolLeader]) -> None:
    """Set all gauges; of pools that are not led here only that: their epoch is 0."""
    found: dict[Gauge, Values] = {
        gauge: {}
        for gauge in (
            *(metrics.EPOCH, metrics.REVISION, metrics.LEASES, metrics.AGENTS),
            *(metrics.QUEUE_LENGTH, metrics.QUEUE_AGE, metrics.CAPACITY, metrics.BOOKED),
        )
    }
    for leader in leaders:
        found[metrics.EPOCH][leader.pool,] = 0
        if leader.reign is not None:
            _of_pool(leader.pool, leader.reign, found)
    for gauge, values in found.items():
        gauge.replace(values)


def _of_pool(pool: str, reign: Reign, found: dict[Gauge, Values]) -> None:
    mirror, now = reign.mirror, reign.clock.now_ms()
    found[metrics.EPOCH][pool,] = reign.claim.epoch
    found[metrics.REVISION][pool,] = mirror.seen_revision
    for state in LeaseState:
        if state not in ENDED:
            found[metrics.LEASES][pool, state.value] = mirror.count_in(state)
    for name, count in Counter(each.state.value for each in mirror.agents.values()).items():
        found[metrics.AGENTS][pool, name] = count
    _queue(pool, reign, now, found)
    has, booked = ResourceVector(), ResourceVector()
    for node in mirror.nodes.values():
        if node.state is NodeState.OPEN:
            has += node.view().capacity_at(now)
    for row in mirror.rows.values():
        if row.interval.start <= now < row.interval.end and not row.displaced:
            booked += row.amounts
    for kind, amount in has.items():
        found[metrics.CAPACITY][pool, kind] = amount
        found[metrics.BOOKED][pool, kind] = booked[kind]


def _queue(pool: str, reign: Reign, now: Millis, found: dict[Gauge, Values]) -> None:
    outcome = reign.cycle.outcome
    expected = outcome.predictions if outcome is not None else {}
    lengths, ages = found[metrics.QUEUE_LENGTH], found[metrics.QUEUE_AGE]
    for entry in reign.mirror.leases.values():
        if entry.lease.state not in WAITING:
            continue
        known = expected.get(entry.lease.id)
        key = (pool, known.reason if known is not None else UNPLANNED)
        lengths[key] = lengths.get(key, 0) + 1
        ages[key] = max(ages.get(key, 0.0), (now - entry.lease.created) / 1_000)
