"""Admission's calls: unpack, validate, one use case, pack."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final

from tenure.admission.v1 import admission_pb2 as calls
from tenure.admission.v1.admission_pb2_grpc import AdmissionServiceServicer
from tenure.type.v1.service_info_pb2 import ServiceInfo
from tenure_admission import convert, convert_calls, convert_parts, metrics, validation
from tenure_admission.intake import Intake, request_key
from tenure_admission.ports import BatchCreation
from tenure_admission.records import Creation
from tenure_admission.servicer_quotas import QuotaCalls
from tenure_admission.store import answers
from tenure_admission.usecases.changing import Changing
from tenure_admission.usecases.creating import Creating
from tenure_admission.usecases.explaining import Explaining
from tenure_admission.usecases.limiting import Limiting
from tenure_admission.usecases.reading import Reading, WatchFilter
from tenure_admission.usecases.recording import Recording
from tenure_admission.usecases.repeating import Repeating
from tenure_admission.usecases.sealing import Sealing
from tenure_admission.usecases.waiting import WaitedFor, Waiting
from tenure_core.errors import Invalid, WrongState
from tenure_core.timebase import MINUTE_MS
from tenure_runtime.rpc import paging
from tenure_runtime.rpc.caller import caller
from tenure_runtime.rpc.identity import Permissions, Role
from tenure_runtime.rpc.origin import current_origin
from tenure_runtime.rpc.wire import bare, span_to_millis
from tenure_runtime.telemetry.tracing import span_in_each

SERVICE: Final = "tenure.admission.v1.AdmissionService"
_CLIENTS: Final = frozenset({Role.USER, Role.OPERATOR, Role.SERVICE})
_LEADERS: Final = frozenset({Role.SERVICE})
PERMISSIONS: Final = Permissions.of(
    SERVICE,
    {
        "CreateLease": _CLIENTS,
        "BatchCreateLeases": _CLIENTS,
        "GetLease": _CLIENTS,
        "ListLeases": _CLIENTS,
        "WatchLeases": _CLIENTS,
        "CancelLease": _CLIENTS,
        "ConfirmLeases": _CLIENTS,
        "UpdateLease": _CLIENTS,
        "WaitLease": _CLIENTS,
        "ExplainLease": _CLIENTS,
        "RecordTransitions": _LEADERS,
        "FenceEpoch": _LEADERS,
        "SealSecrets": _LEADERS,
        "SetQuota": frozenset({Role.OPERATOR}),
        "DeleteQuota": frozenset({Role.OPERATOR}),
        "ListQuotas": _CLIENTS,
        "GetUsage": _CLIENTS,
        "VerifyUsage": frozenset({Role.OPERATOR, Role.SERVICE}),
        "GetServiceInfo": frozenset(Role),
    },
)

# grpc's context is typed by direction only; nothing here uses it.
Context = Any


@dataclass(frozen=True, slots=True)
class UseCases:
    """What the servicer calls."""

    creating: Creating
    reading: Reading
    changing: Changing
    waiting: Waiting
    explaining: Explaining
    recording: Recording
    repeating: Repeating
    limiting: Limiting
    sealing: Sealing


class AdmissionServicer(QuotaCalls, AdmissionServiceServicer):
    """Serves `tenure.admission.v1.AdmissionService`."""

    def __init__(self, use_cases: UseCases, intake: Intake, info: ServiceInfo) -> None:
        super().__init__(use_cases.limiting)
        self._do = use_cases
        self._intake = intake
        self._info = info

    async def CreateLease(
        self, request: calls.CreateLeaseRequest, context: Context
    ) -> calls.CreateLeaseResponse:
        """Store a lease."""
        viewer = caller()
        key = self._intake.key(request, viewer)
        try:
            draft = self._intake.draft(request, viewer, self._intake.now())
        except (Invalid, WrongState) as refusal:
            body = await self._do.repeating.first_answer(key, refusal)
        else:
            creation = Creation(draft, key, request.validate_only, current_origin())
            body = await self._do.creating.create(creation)
            metrics.LEASES_CREATED.add(not request.validate_only, "CreateLease")
        response = calls.CreateLeaseResponse()
        response.lease.ParseFromString(body)
        return response

    async def BatchCreateLeases(
        self, request: calls.BatchCreateLeasesRequest, context: Context
    ) -> calls.BatchCreateLeasesResponse:
        """Store many leases."""
        viewer = caller()
        validation.refuse(validation.batch(request))
        key = self._intake.key(request, viewer)
        dry = tuple(item.validate_only for item in request.requests)
        drafts = await self._intake.drafts(request, viewer, self._intake.now())
        batch = BatchCreation(drafts, key, request.all_or_none, dry)
        outcomes = await self._do.creating.create_batch(batch)
        metrics.LEASES_CREATED.add(sum(isinstance(o, bytes) for o in outcomes), "BatchCreateLeases")
        return answers.response_of(outcomes)

    async def GetLease(
        self, request: calls.GetLeaseRequest, context: Context
    ) -> calls.GetLeaseResponse:
        """Return one lease."""
        validation.refuse(validation.name(request.name))
        stored = await self._do.reading.get(convert_parts.id_of(request.name), caller())
        return calls.GetLeaseResponse(lease=convert.wire_lease(stored))

    async def ListLeases(
        self, request: calls.ListLeasesRequest, context: Context
    ) -> calls.ListLeasesResponse:
        """Return a page of leases."""
        validation.refuse(validation.listing(request))
        size, token = paging.page_size(request.page_size), request.page_token
        request.ClearField("page_size")
        request.ClearField("page_token")
        arguments = request.SerializeToString(deterministic=True)
        cursor = paging.decode_page_token(token, arguments)
        asked = convert_calls.listing_of(request, size, cursor)
        page = await self._do.reading.page(asked, request.owner, caller())
        following = page.next_cursor
        return calls.ListLeasesResponse(
            leases=[convert.wire_lease(stored) for stored in page.leases],
            next_page_token=paging.encode_page_token(following, arguments) if following else "",
            resume_token=page.resume_token,
        )

    async def WatchLeases(
        self, request: calls.WatchLeasesRequest, context: Context
    ) -> AsyncIterator[calls.WatchLeasesResponse]:
        """Stream changes and bookmarks."""
        validation.refuse(validation.watch(request))
        wanted = WatchFilter(request.owner, request.pool, convert_parts.id_of(request.name))
        events = self._do.reading.watch(request.resume_token, wanted, caller())
        async with aclosing(events):
            async for event in events:
                yield convert_calls.event_to_wire(event)

    async def CancelLease(
        self, request: calls.CancelLeaseRequest, context: Context
    ) -> calls.CancelLeaseResponse:
        """Give a lease up."""
        validation.refuse(validation.cancel(request))
        viewer = caller()
        body = await self._do.changing.cancel(
            convert_parts.id_of(request.name),
            viewer,
            etag=request.etag,
            message=request.message,
            request=request_key(request, viewer),
        )
        response = calls.CancelLeaseResponse()
        response.lease.ParseFromString(body)
        return response

    async def ConfirmLeases(
        self, request: calls.ConfirmLeasesRequest, context: Context
    ) -> calls.ConfirmLeasesResponse:
        """Confirm leases that are held."""
        validation.refuse(validation.confirm(request))
        viewer = caller()
        bodies = await self._do.changing.confirm(
            [convert_parts.id_of(name) for name in request.names],
            viewer,
            request_key(request, viewer),
        )
        response = calls.ConfirmLeasesResponse()
        for body in bodies:
            response.leases.add().ParseFromString(body)
        return response

    async def UpdateLease(
        self, request: calls.UpdateLeaseRequest, context: Context
    ) -> calls.UpdateLeaseResponse:
        """Change a lease, or ask its leader to."""
        viewer = caller()
        key = request_key(request, viewer)
        try:
            validation.refuse(validation.update(request, self._intake.now()))
        except Invalid as refusal:
            body = await self._do.repeating.first_answer(key, refusal)
        else:
            body = await self._do.changing.update(
                convert_parts.id_of(request.lease.name),
                viewer,
                convert_calls.wanted_of(request, validation.update_paths(request)),
                request=key,
                dry=request.validate_only,
            )
        response = calls.UpdateLeaseResponse()
        response.lease.ParseFromString(body)
        return response

    async def WaitLease(
        self, request: calls.WaitLeaseRequest, context: Context
    ) -> calls.WaitLeaseResponse:
        """Wait for a lease."""
        validation.refuse(validation.wait(request))
        states = frozenset(convert_parts.STATE_OF_WIRE[state] for state in request.states)
        given = request.HasField("timeout")
        waited = await self._do.waiting.wait(
            convert_parts.id_of(request.name),
            caller(),
            WaitedFor(states, request.until_change_decided),
            span_to_millis(request.timeout) if given else MINUTE_MS,
        )
        return calls.WaitLeaseResponse(
            lease=convert.wire_lease(waited.lease), timed_out=waited.timed_out
        )

    async def ExplainLease(
        self, request: calls.ExplainLeaseRequest, context: Context
    ) -> calls.ExplainLeaseResponse:
        """Say why a lease is where it is."""
        validation.refuse(validation.name(request.name))
        explanation = await self._do.explaining.explain(convert_parts.id_of(request.name), caller())
        return convert_calls.explanation_to_wire(explanation)

    async def RecordTransitions(
        self, request: calls.RecordTransitionsRequest, context: Context
    ) -> calls.RecordTransitionsResponse:
        """Record what a leader decided."""
        validation.refuse(validation.record(request))
        with span_in_each("admission.record_transition") as note:
            outcomes = await self._do.recording.record(
                request.scope,
                request.epoch,
                [convert_calls.transition_of(each) for each in request.transitions],
                convert_calls.forecasts_of(request.predictions, self._intake.now()),
            )
            response = convert_calls.verdicts_to_wire(request.transitions, outcomes)
            for asked, verdict in zip(request.transitions, response.verdicts, strict=True):
                metrics.TRANSITIONS.add(1, verdict.reason or "RECORDED")
                state = convert_parts.STATE_OF_WIRE[asked.state].value
                note(
                    verdict.lease.trace_parent,
                    lease=bare(asked.lease),
                    state=state,
                    refusal=verdict.reason,
                )
        return response

    async def SealSecrets(
        self, request: calls.SealSecretsRequest, context: Context
    ) -> calls.SealSecretsResponse:
        """Seal a lease's secrets for agents."""
        validation.refuse(validation.seal(request))
        lease_id = convert_parts.id_of(request.lease)
        sealed = await self._do.sealing.seal(lease_id, request.sealing_keys)
        return calls.SealSecretsResponse(sealed=sealed)

    async def FenceEpoch(
        self, request: calls.FenceEpochRequest, context: Context
    ) -> calls.FenceEpochResponse:
        """Raise a scope's epoch."""
        validation.refuse(list(validation.scope_and_epoch(request.scope, request.epoch)))
        epoch = await self._do.recording.fence(request.scope, request.epoch)
        return calls.FenceEpochResponse(epoch=epoch)

    async def GetServiceInfo(
        self, request: calls.GetServiceInfoRequest, context: Context
    ) -> calls.GetServiceInfoResponse:
        """Say which program answers."""
        return calls.GetServiceInfoResponse(info=self._info)
