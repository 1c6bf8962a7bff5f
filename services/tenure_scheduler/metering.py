"""Meters what runs in a pool, stores it now and then, and says the fair-share factors.

Fair share is all that hangs on it: a database that is away delays it and nothing else. What ran and
ended since the last storing is lost with its leader, `METER_MS` at most; what goes on running is
counted by the next leader from where the stored part ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Final

from tenure_core.admission.usage_meter import METER_MS, UsageMeter
from tenure_core.errors import DomainError, Stale
from tenure_core.leases.states import PLACED, LeaseState
from tenure_core.policies.bundle import Policies
from tenure_core.resources import ResourceVector
from tenure_core.timebase import Millis
from tenure_runtime.telemetry.logging import get_logger
from tenure_scheduler.mirror import PoolMirror
from tenure_scheduler.ports import Claim, UsageStore

RUNNING: Final = PLACED - {LeaseState.SUSPENDED}
Factors = Mapping[str, Mapping[str, Decimal]]


class Metering:
    """The meter of one leader of one pool."""

    def __init__(
        self, claim: Claim, mirror: PoolMirror, store: UsageStore, meter: UsageMeter
    ) -> None:
        self._claim = claim
        self._mirror = mirror
        self._store = store
        self._meter = meter
        self._stored_until = meter.until
        self._factors: tuple[object, Factors] = (None, {})

    async def run_once(self, now: Millis) -> None:
        """Note what began and ended to run since the last call; store when it is time.

        Raises Stale USAGE_MOVED_ON when another leader stored meanwhile.
        """
        for name in self._mirror.take_moved():
            entry = self._mirror.leases.get(name)
            if entry is not None and entry.lease.state in RUNNING:
                self._meter.begin(name, entry.lease.spec, min(now, entry.lease.started or now))
            else:
                self._meter.end(name, now)
        if now - self._stored_until >= METER_MS:
            await self._store_until(now)

    async def _store_until(self, now: Millis) -> None:
        taken = self._meter.metered(now)
        try:
            await self._store.add(self._claim, self._stored_until, now, taken)
        except Stale:
            raise
        except DomainError as error:
            get_logger().warning("usage.unstored", pool=self._claim.pool, reason=error.reason)
            return
        self._meter.take(now)
        self._stored_until = now

    def factors(self, policies: Policies) -> Factors:
        """Return the factors that the pool's order asks for, made once after each storing."""
        remembered = policies.ordering.remembers
        if not remembered:
            return {}
        capacity = ResourceVector()
        for node in self._mirror.nodes.values():
            capacity = capacity + node.view().capacity_at(self._stored_until)
        asked = (self._stored_until, remembered, policies.half_life_ms, capacity)
        if self._factors[0] != asked:
            made = self._meter.factors(remembered, policies.half_life_ms, capacity)
            self._factors = (asked, made)
        return self._factors[1]
