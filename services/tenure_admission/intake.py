"""Requests for leases → drafts: validated, defaults filled in, ids chosen, trace noted."""

from __future__ import annotations

import asyncio
from typing import Final

from tenure.admission.v1 import admission_pb2 as calls
from tenure.admission.v1 import identity_pb2 as identity
from tenure.admission.v1 import lease_pb2 as pb
from tenure_admission import convert, validation
from tenure_admission.pool_view import Wanted, another
from tenure_admission.ports import Ids, PoolDirectory, PoolGates
from tenure_admission.records import Draft, RequestKey
from tenure_admission.secret_values import SecretValues
from tenure_core.errors import DomainError, WrongState
from tenure_core.identity.grants import Scope
from tenure_core.identity.viewer import Viewer
from tenure_core.timebase import Clock, Millis
from tenure_runtime.telemetry.tracing import current_traceparent

# A thousand items would hold up the event loop for some 30 ms.
ITEMS_AT_ONCE: Final = 100

Changing = (
    calls.CreateLeaseRequest
    | calls.BatchCreateLeasesRequest
    | calls.CancelLeaseRequest
    | calls.UpdateLeaseRequest
    | calls.ConfirmLeasesRequest
    | calls.SetQuotaRequest
    | calls.DeleteQuotaRequest
    | identity.CreateApiKeyRequest
    | identity.RotateApiKeyRequest
    | identity.RevokeApiKeyRequest
)


class Intake:
    """Makes drafts of what callers ask for."""

    def __init__(
        self,
        pools: PoolDirectory,
        gates: PoolGates,
        clock: Clock,
        ids: Ids,
        secrets: SecretValues,
    ) -> None:
        self._pools = pools
        self._gates = gates
        self._clock = clock
        self._ids = ids
        self._secrets = secrets

    def key(
        self, request: calls.CreateLeaseRequest | calls.BatchCreateLeasesRequest, viewer: Viewer
    ) -> RequestKey | None:
        """Return the key of a request that may carry secrets. Take it before `draft`."""
        return request_key(self._secrets.compared(request), viewer)

    def now(self) -> Millis:
        """Return the instant by which a request is judged."""
        return self._clock.now_ms()

    def draft(self, request: calls.CreateLeaseRequest, viewer: Viewer, now: Millis) -> Draft:
        """Return the draft of one request, which is changed.

        Raises Invalid with all violations, Forbidden SCOPE_FORBIDDEN outside the caller's scope,
        WrongState POOL_CORDONED for a lease that may not wait until its pool takes leases again.
        """
        if not request.lease.pool:
            request.lease.pool = self._choose(request.lease, viewer.scope)
        validation.refuse(validation.create(request, now, self._pools))
        pool = request.lease.pool
        viewer.check_creates(request.lease.project or "default", pool)
        if request.lease.terms.HasField("immediate") and self._gates.cordoned(pool):
            text = f"Pool {pool} takes no new leases at present; an immediate one cannot wait."
            raise WrongState("POOL_CORDONED", text, pool=pool)
        lease_id = request.lease_id or self._ids.lease_id()
        return convert.draft(
            request.lease,
            lease_id=lease_id,
            owner=viewer.name,
            now=now,
            trace_parent=current_traceparent(),
            id_chosen=bool(request.lease_id),
            sees_all=viewer.sees_all,
            secrets=self._secrets.take(request.lease, lease_id),
        )

    def _choose(self, lease: pb.Lease, scope: Scope) -> str:
        """Return the pool of a lease that names none: the default one where it may ever fit.

        That of a key which is limited to others is the first of those.
        """
        default = convert.NAME_DEFAULT
        name = default if default in (scope.pools or {default}) else min(scope.pools)
        preferred = self._pools.view(name)
        asked = {kind: amount for kind, amount in lease.amounts.items() if amount}
        if preferred is None or any(amount < 0 for amount in asked.values()):
            return name
        wanted = Wanted(asked, lease.node_count, dict(lease.node_selector), lease.spread)
        if preferred.could_carry(wanted) is not False:
            return name
        open_to = scope.pools or self._pools.views().keys()
        views = {each: view for each, view in self._pools.views().items() if each in open_to}
        return another(wanted, views, self._gates.cordoned) or name

    async def drafts(
        self, request: calls.BatchCreateLeasesRequest, viewer: Viewer, now: Millis
    ) -> list[Draft | DomainError]:
        """Return the draft of each item, or what is wrong with it; other calls go on meanwhile."""
        drafts: list[Draft | DomainError] = []
        for index, item in enumerate(request.requests):
            if index % ITEMS_AT_ONCE == ITEMS_AT_ONCE - 1:
                await asyncio.sleep(0)
            # The batch has a request id of its own.
            item.request_id = ""
            try:
                drafts.append(self.draft(item, viewer, now))
            except DomainError as refusal:
                drafts.append(refusal)
        return drafts


def request_key(request: Changing, viewer: Viewer) -> RequestKey | None:
    """Return the key of a request with an id, None of one without. Take it before `draft`."""
    if not request.request_id:
        return None
    content = request.DESCRIPTOR.name.encode() + b"\0"
    content += request.SerializeToString(deterministic=True)
    return RequestKey(viewer.name, request.request_id.lower(), content)
