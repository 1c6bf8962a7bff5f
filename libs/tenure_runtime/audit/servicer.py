"""Serves `tenure.audit.v1`: the same beside each service's own contract, over its own trail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tenure.audit.v1 import audit_pb2 as pb
from tenure.audit.v1.audit_pb2_grpc import AuditServiceServicer
from tenure_core.audit.chain import Breach, Noted
from tenure_core.audit.entry import Entry
from tenure_core.errors import Invalid, Violation
from tenure_runtime.audit.reading import EntryFilter, Place, TrailReader
from tenure_runtime.rpc.identity import Permissions, Role
from tenure_runtime.rpc.paging import decode_page_token, encode_page_token, page_size
from tenure_runtime.rpc.wire import to_interval, to_timestamp

SERVICE: Final = "tenure.audit.v1.AuditService"
PERMISSIONS: Final = Permissions.of(
    SERVICE,
    {
        "ListEntries": frozenset({Role.OPERATOR}),
        "VerifyTrail": frozenset({Role.OPERATOR}),
    },
)
_TEXT_MAX: Final = 256
_VERIFYING: Final = b"VerifyTrail"
# grpc's context is typed by direction only; nothing here uses it.
Context = Any
Shown = Callable[[str, bytes], str]


def as_json(_resource: str, body: bytes) -> str:
    """Return what is stored as JSON as it is."""
    return body.decode()


class AuditServicer(AuditServiceServicer):
    """Serves one trail. `shown` makes JSON of how the service encodes a resource of some name."""

    def __init__(self, trail: TrailReader, shown: Shown = as_json) -> None:
        self._trail = trail
        self._shown = shown

    async def ListEntries(
        self, request: pb.ListEntriesRequest, context: Context
    ) -> pb.ListEntriesResponse:
        """Return a page of entries."""
        size, token = page_size(request.page_size), request.page_token
        request.ClearField("page_size")
        request.ClearField("page_token")
        arguments = request.SerializeToString(deterministic=True)
        cursor = decode_page_token(token, arguments)
        before = _whole(cursor, 1)[0] if cursor else 0
        found = await self._trail.entries(_filter_of(request, before), size + 1)
        more = len(found) > size
        return pb.ListEntriesResponse(
            entries=[self._entry(entry) for entry in found[:size]],
            next_page_token=(
                encode_page_token([found[size - 1].sequence], arguments) if more else ""
            ),
        )

    async def VerifyTrail(
        self, request: pb.VerifyTrailRequest, context: Context
    ) -> pb.VerifyTrailResponse:
        """Recompute the next stretch of the chain."""
        cursor = decode_page_token(request.page_token, _VERIFYING)
        noted = _noted_of(request)
        stretch = await self._trail.verify(_place_of(cursor) if cursor else None, noted)
        place = stretch.place
        ended = stretch.unsealed is not None or place is None
        return pb.VerifyTrailResponse(
            breaches=map(_breach, stretch.breaches),
            next_page_token="" if ended or place is None else _token_of(place),
            batch=place.number if place else 0,
            hash=place.hash.hex() if place else "",
            sealed_count=stretch.sealed,
            unsealed_count=stretch.unsealed or 0,
            dropped_count=stretch.dropped,
        )

    def _entry(self, entry: Entry) -> pb.Entry:
        origin, change = entry.origin, entry.change

        def shown(body: bytes | None) -> str:
            return "" if body is None else self._shown(change.resource, body)

        return pb.Entry(
            sequence=entry.sequence,
            time=to_timestamp(entry.at),
            caller=origin.caller,
            method=origin.method,
            resource=change.resource,
            peer=origin.peer,
            request_id=origin.request_id,
            before=shown(change.before),
            after=shown(change.after),
        )


def _filter_of(request: pb.ListEntriesRequest, before: int) -> EntryFilter:
    """Return a valid request's filter. Raises Invalid with all violations."""
    found = [
        Violation(name, "TOO_LONG", f"at most {_TEXT_MAX} characters")
        for name in ("caller", "resource", "method")
        if len(getattr(request, name)) > _TEXT_MAX
    ]
    written = None
    if request.HasField("interval"):
        try:
            written = to_interval(request.interval)
        except ValueError:
            found.append(Violation("interval", "INTERVAL_EMPTY", "the end comes after the start"))
    if found:
        raise Invalid(found)
    return EntryFilter(request.caller, request.resource, request.method, written, before)


def _whole(cursor: list[str | int], count: int) -> list[int]:
    """Return a cursor's whole numbers. Raises Invalid PAGE_TOKEN_INVALID for another's cursor."""
    whole = [part for part in cursor if isinstance(part, int) and 0 <= part < 1 << 63]
    if len(whole) != count:
        found = Violation("page_token", "PAGE_TOKEN_INVALID", "is not a token of this call")
        raise Invalid([found], "PAGE_TOKEN_INVALID")
    return whole


def _token_of(place: Place) -> str:
    return encode_page_token([place.number, place.sequence, place.hash.hex()], _VERIFYING)


def _place_of(cursor: list[str | int]) -> Place:
    number, sequence = _whole(cursor, 2)
    try:
        digest = bytes.fromhex(str(cursor[-1]))
    except ValueError:
        digest = b""
    return Place(number, digest, sequence)


def _noted_of(request: pb.VerifyTrailRequest) -> Noted | None:
    """Return the batch that was noted. Raises Invalid for what is no hash."""
    if not request.noted_hash:
        return None
    try:
        return Noted(request.noted_batch, bytes.fromhex(request.noted_hash))
    except ValueError:
        found = Violation("noted_hash", "HASH_MALFORMED", "is 64 hexadecimal digits")
        raise Invalid([found]) from None


def _breach(breach: Breach) -> pb.Breach:
    return pb.Breach(
        kind=pb.Breach.Kind.Value(f"KIND_{breach.kind.value}"),
        batch=breach.batch,
        sequence=breach.sequence,
        message=breach.message,
    )
