"""Cancel and update leases for their owners."""

from __future__ import annotations

from collections.abc import Sequence

from tenure_admission import changes
from tenure_admission.changes import WantedChange
from tenure_admission.ports import ChangeOrder, Ids, JointOrder, LeaseChanger, PoolDirectory
from tenure_admission.records import LeaseRecord, RequestKey
from tenure_core.errors import Invalid, Violation
from tenure_core.identity.viewer import Viewer
from tenure_core.leases.lease import Deadline
from tenure_core.leases.states import WAITING
from tenure_core.timebase import Clock, Millis


class Changing:
    """Changes that owners ask for."""

    def __init__(self, changer: LeaseChanger, pools: PoolDirectory, clock: Clock, ids: Ids) -> None:
        self._changer = changer
        self._pools = pools
        self._clock = clock
        self._ids = ids

    async def cancel(
        self,
        lease_id: str,
        viewer: Viewer,
        *,
        etag: str = "",
        message: str = "",
        request: RequestKey | None = None,
    ) -> bytes:
        """Give a lease up and return it. Raises LEASE_NOT_FOUND, ETAG_MISMATCH."""
        now = self._clock.now_ms()

        def decide(record: LeaseRecord) -> LeaseRecord:
            return changes.cancel(record, etag, message, now)

        return await self._changer.change(ChangeOrder(lease_id, decide, viewer, request))

    async def confirm(
        self, lease_ids: Sequence[str], viewer: Viewer, request: RequestKey | None = None
    ) -> list[bytes]:
        """Confirm leases that are held, all or none, and return them.

        Raises LEASE_NOT_FOUND, LEASE_NOT_BOOKED, HOLD_EXPIRED, LEASE_ENDED.
        """
        now = self._clock.now_ms()

        def decide(record: LeaseRecord) -> LeaseRecord:
            return changes.confirm(record, now)

        order = JointOrder(tuple(lease_ids), decide, viewer, request)
        return await self._changer.change_together(order)

    async def update(
        self,
        lease_id: str,
        viewer: Viewer,
        wanted: WantedChange,
        *,
        request: RequestKey | None = None,
        dry: bool = False,
    ) -> bytes:
        """Change a lease, or ask its leader to, and return it.

        Raises LEASE_NOT_FOUND, ETAG_MISMATCH, LEASE_ENDED, CHANGE_PENDING, INVALID_REQUEST.
        """
        now, change_id = self._clock.now_ms(), self._ids.short()

        def decide(record: LeaseRecord) -> LeaseRecord:
            after = changes.update(record, wanted, change_id, now)
            if after is not record and after.lease.state in WAITING:
                self._check(after, now)
            return after

        return await self._changer.change(ChangeOrder(lease_id, decide, viewer, request, dry))

    def _check(self, record: LeaseRecord, now: Millis) -> None:
        """Raise Invalid when the new values together ask for what can never be."""
        spec = record.lease.spec
        found = []
        if isinstance(spec.terms, Deadline):
            earliest = max(now, spec.terms.earliest_start or now)
            if earliest + spec.duration_ms > spec.terms.deadline:
                text = "leaves no room for the duration after the earliest start"
                found.append(Violation("lease.terms.deadline", "DEADLINE_TOO_EARLY", text))
        view = self._pools.view(spec.pool)
        if view is not None:
            slots = view.slots_ever(spec.amounts, spec.node_selector, spread=spec.spread)
            if slots is not None and slots < spec.node_count:
                text = f"pool {spec.pool} could carry at most {slots} such slots at once"
                found.append(Violation("lease.node_count", "LEASE_NEVER_FITS", text))
        if found:
            raise Invalid(found)
