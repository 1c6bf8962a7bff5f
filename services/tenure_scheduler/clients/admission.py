"""The lease book of `ports` over gRPC."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncGenerator, Sequence
from typing import Final

from tenure.admission.v1 import admission_pb2 as apb
from tenure.admission.v1.admission_pb2_grpc import AdmissionServiceStub
from tenure_core.errors import NotFound
from tenure_core.leases.states import ENDED, LeaseState
from tenure_runtime.rpc.client import Client
from tenure_scheduler.convert import leases as convert
from tenure_scheduler.entries import (
    LeaseChange,
    LeaseEntry,
    Prediction,
    Transition,
    TransitionVerdict,
)
from tenure_scheduler.ports import Claim

PAGE: Final = 1_000
TRANSITIONS_MAX: Final = 1_000
SEALS_MAX: Final = 32
TOLD_MAX: Final = 10_000
"""For how many leases it is remembered which version an answer told."""

_LIVE: Final = tuple(state for state in LeaseState if state not in ENDED)


class AdmissionClient:
    """The lease book of `ports` over gRPC."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._stub = AdmissionServiceStub(client.channel)
        self._told: OrderedDict[str, int] = OrderedDict()

    async def fence(self, claim: Claim) -> None:
        """Have every older epoch refused."""
        request = apb.FenceEpochRequest(scope=claim.scope, epoch=claim.epoch)
        await self._client.call(self._stub.FenceEpoch, request)

    async def held(self, pool: str) -> tuple[list[LeaseEntry], str]:
        """Return the pool's leases that have not ended, and the token of the first page."""
        found: list[LeaseEntry] = []
        request = apb.ListLeasesRequest(
            page_size=PAGE,
            pool=pool,
            states=[convert.from_state(state) for state in _LIVE],
        )
        token = ""
        while True:
            page = await self._client.call(self._stub.ListLeases, request)
            found.extend(convert.to_lease(lease) for lease in page.leases)
            token = token or page.resume_token
            if not page.next_page_token:
                return found, token
            request.page_token = page.next_page_token

    async def watch(self, pool: str, token: str) -> AsyncGenerator[LeaseChange, None]:
        """Yield the pool's lease changes after the token."""
        request = apb.WatchLeasesRequest(pool=pool, resume_token=token)
        async with self._client.stream(self._stub.WatchLeases, request) as changes:
            async for change in changes:
                if self._told.get(change.lease.name, 0) >= change.lease.version > 0:
                    # The echo of what `record` told already: not worth converting again.
                    yield LeaseChange(change.resume_token)
                    continue
                lease = convert.to_lease(change.lease) if change.HasField("lease") else None
                yield LeaseChange(change.resume_token, lease)

    async def record(
        self, claim: Claim, transitions: Sequence[Transition], predictions: Sequence[Prediction]
    ) -> list[TransitionVerdict]:
        """Record transitions, 1,000 a call, and predictions with the first of them."""
        verdicts: list[TransitionVerdict] = []
        for start in range(0, max(len(transitions), 1), TRANSITIONS_MAX):
            part = transitions[start : start + TRANSITIONS_MAX]
            request = apb.RecordTransitionsRequest(
                scope=claim.scope,
                epoch=claim.epoch,
                transitions=map(convert.from_transition, part),
                predictions=map(convert.from_prediction, predictions) if not start else (),
            )
            response = await self._client.call(self._stub.RecordTransitions, request)
            self._note_told(response)
            verdicts.extend(
                TransitionVerdict(
                    verdict.transition_id,
                    verdict.reason,
                    verdict.message,
                    convert.to_lease(verdict.lease) if verdict.HasField("lease") else None,
                )
                for verdict in response.verdicts
            )
        return verdicts

    def _note_told(self, response: apb.RecordTransitionsResponse) -> None:
        for verdict in response.verdicts:
            self._told[verdict.lease.name] = verdict.lease.version
            self._told.move_to_end(verdict.lease.name)
        while len(self._told) > TOLD_MAX:
            self._told.popitem(last=False)

    async def state_of(self, lease: str) -> LeaseState | None:
        """Return the state of any lease."""
        request = apb.GetLeaseRequest(name=f"leases/{lease}")
        try:
            response = await self._client.call(self._stub.GetLease, request)
        except NotFound:
            return None
        return convert.to_state(response.lease.state)

    async def seal(self, lease: str, sealing_keys: Sequence[bytes]) -> list[bytes]:
        """Return a lease's secrets, sealed for each key, 32 a call."""
        sealed: list[bytes] = []
        for start in range(0, len(sealing_keys), SEALS_MAX):
            request = apb.SealSecretsRequest(
                lease=f"leases/{lease}", sealing_keys=sealing_keys[start : start + SEALS_MAX]
            )
            sealed.extend((await self._client.call(self._stub.SealSecrets, request)).sealed)
        return sealed
