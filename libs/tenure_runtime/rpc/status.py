"""The one table between domain errors and gRPC statuses, in both directions.

Decides the status code of each kind, and what goes into `google.rpc.Status`: exactly one
ErrorInfo (reason, domain `<service>.tenure`, metadata), BadRequest with every violation, RetryInfo
where a time to wait is known. Which error to raise is left to whoever raises it.

Trailers are limited by most gRPC peers to 8 KiB, so a status is cut to fit: violations that do not
fit are left out from the end and counted in the metadata key `violationsOmitted`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, cast

import grpc
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from tenure_core.errors import (
    AlreadyExists,
    Conflict,
    DomainError,
    Exhausted,
    Forbidden,
    Invalid,
    NotFound,
    Stale,
    Unauthenticated,
    Unavailable,
    Violation,
    WrongState,
)

RESUME_TOKEN_EXPIRED: Final = "RESUME_TOKEN_EXPIRED"  # noqa: S105 - a reason, no secret
DETAILS_KEY: Final = "grpc-status-details-bin"
STATUS_BYTES_MAX: Final = 6_000
MESSAGE_LENGTH_MAX: Final = 500

# Order matters only for readers: kinds do not derive from one another.
CODE_OF_KIND: Final[dict[type[DomainError], grpc.StatusCode]] = {
    Invalid: grpc.StatusCode.INVALID_ARGUMENT,
    NotFound: grpc.StatusCode.NOT_FOUND,
    AlreadyExists: grpc.StatusCode.ALREADY_EXISTS,
    Conflict: grpc.StatusCode.ABORTED,
    WrongState: grpc.StatusCode.FAILED_PRECONDITION,
    Exhausted: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Stale: grpc.StatusCode.FAILED_PRECONDITION,
    Unauthenticated: grpc.StatusCode.UNAUTHENTICATED,
    Forbidden: grpc.StatusCode.PERMISSION_DENIED,
    Unavailable: grpc.StatusCode.UNAVAILABLE,
}

# The way back. WrongState and Stale share a code; KIND_KEY in the metadata tells them apart.
_KIND_OF_CODE: Final[dict[grpc.StatusCode, type[DomainError]]] = {
    grpc.StatusCode.NOT_FOUND: NotFound,
    grpc.StatusCode.ALREADY_EXISTS: AlreadyExists,
    grpc.StatusCode.ABORTED: Conflict,
    grpc.StatusCode.FAILED_PRECONDITION: WrongState,
    grpc.StatusCode.OUT_OF_RANGE: Stale,
    grpc.StatusCode.RESOURCE_EXHAUSTED: Exhausted,
    grpc.StatusCode.UNAUTHENTICATED: Unauthenticated,
    grpc.StatusCode.PERMISSION_DENIED: Forbidden,
    grpc.StatusCode.UNAVAILABLE: Unavailable,
}

CALL_DROPPED: Final = "CALL_DROPPED"
"""Why a call ended that the other side neither answered nor refused."""
_STALE_KEY: Final = "superseded"
_REASON: Final = re.compile(r"[A-Z][A-Z0-9_]{0,62}", re.ASCII)
# Names that must not be taken for facts: our mark, and parameters of the errors' constructors.
_OURS: Final = frozenset({_STALE_KEY, "retry_after_ms", "code", "self"})
_CODE_OF_NUMBER: Final = {code.value[0]: code for code in grpc.StatusCode}


class RemoteFailure(DomainError):
    """A call failed in a way that no kind describes: a bug over there, a deadline, a cancel.

    `code` is the gRPC status. Raised by clients only; a server that lets one out answers INTERNAL,
    or passes DEADLINE_EXCEEDED on.
    """

    def __init__(
        self, reason: str, message: str, /, *, code: grpc.StatusCode, **metadata: object
    ) -> None:
        super().__init__(reason, message, **metadata)
        self.code = code


def code_of(error: DomainError) -> grpc.StatusCode:
    """Return the gRPC status code of a domain error."""
    if isinstance(error, Stale) and error.reason == RESUME_TOKEN_EXPIRED:
        return grpc.StatusCode.OUT_OF_RANGE
    if isinstance(error, RemoteFailure):
        passed_on = grpc.StatusCode.DEADLINE_EXCEEDED
        return passed_on if error.code is passed_on else grpc.StatusCode.INTERNAL
    for kind in type(error).__mro__:
        if kind in CODE_OF_KIND:
            return CODE_OF_KIND[kind]
    raise AssertionError(f"{type(error).__name__} has no kind")


def encode(error: DomainError, service: str) -> status_pb2.Status:
    """Return the `google.rpc.Status` of a domain error raised by `service` (`admission`)."""
    metadata = dict(error.metadata)
    if isinstance(error, Stale):
        metadata[_STALE_KEY] = "true"
    message = _cut(error.message)
    violations = list(error.violations) if isinstance(error, Invalid) else []
    kept = len(violations)
    while True:
        status = _status(error, message, metadata, service, violations[:kept])
        if status.ByteSize() <= STATUS_BYTES_MAX:
            return status
        if kept > 1:
            kept = kept * 3 // 4
            metadata["violationsOmitted"] = str(len(violations) - kept)
        elif metadata:
            metadata = {}
        else:
            return status_pb2.Status(code=code_of(error).value[0], message=message)


def _status(
    error: DomainError,
    message: str,
    metadata: dict[str, str],
    service: str,
    violations: list[Violation],
) -> status_pb2.Status:
    status = status_pb2.Status(code=code_of(error).value[0], message=message)
    info = error_details_pb2.ErrorInfo(
        reason=error.reason, domain=f"{service}.tenure", metadata=metadata
    )
    status.details.add().Pack(info)
    if violations:
        bad = error_details_pb2.BadRequest()
        for violation in violations:
            bad.field_violations.add(
                field=violation.field,
                description=_cut(violation.description),
                reason=violation.reason,
            )
        status.details.add().Pack(bad)
    retry_after_ms = getattr(error, "retry_after_ms", None)
    if retry_after_ms is not None:
        retry = error_details_pb2.RetryInfo(retry_delay=Duration())
        retry.retry_delay.FromMilliseconds(retry_after_ms)
        status.details.add().Pack(retry)
    return status


def _cut(text: str) -> str:
    return text if len(text) <= MESSAGE_LENGTH_MAX else text[: MESSAGE_LENGTH_MAX - 1] + "…"


def internal(incident: str, service: str) -> status_pb2.Status:
    """Return what a caller sees of a bug: a neutral sentence and the id that is in the log."""
    status = status_pb2.Status(
        code=grpc.StatusCode.INTERNAL.value[0],
        message=f"The service failed unexpectedly; the incident is {incident}.",
    )
    info = error_details_pb2.ErrorInfo(
        reason="INTERNAL", domain=f"{service}.tenure", metadata={"incident": incident}
    )
    status.details.add().Pack(info)
    return status


def decode(error: grpc.aio.AioRpcError) -> DomainError:
    """Return the domain error that a failed call carries, also when it carries no details."""
    trailers = cast("Iterable[tuple[str, str | bytes]]", error.trailing_metadata() or ())
    for key, value in trailers:
        if key == DETAILS_KEY and isinstance(value, bytes):
            try:
                return decode_status(status_pb2.Status.FromString(value))
            except DecodeError:
                break  # Not ours, or damaged: the code and the sentence still tell.
    if error.code() is grpc.StatusCode.CANCELLED:
        # Not by us: whoever cancels here gets no status.
        return Unavailable(CALL_DROPPED, "The service had no room for the call, or was stopped.")
    return decode_status(
        status_pb2.Status(code=error.code().value[0], message=error.details() or "")
    )


def decode_status(status: status_pb2.Status) -> DomainError:
    """Return the domain error that a `google.rpc.Status` describes.

    Raises DecodeError when a detail is damaged.
    """
    code = _CODE_OF_NUMBER.get(status.code, grpc.StatusCode.UNKNOWN)
    info = error_details_pb2.ErrorInfo()
    bad = error_details_pb2.BadRequest()
    retry = error_details_pb2.RetryInfo()
    waits = False
    for detail in status.details:
        waits = detail.Unpack(retry) or waits
        detail.Unpack(info) or detail.Unpack(bad)
    reason = info.reason if _REASON.fullmatch(info.reason) else code.name
    message = status.message or f"The call failed with {code.name}."
    metadata: dict[str, object] = {
        key: value for key, value in info.metadata.items() if key not in _OURS
    }
    if code is grpc.StatusCode.INVALID_ARGUMENT:
        return _invalid(reason, message, bad)
    kind = _KIND_OF_CODE.get(code)
    if kind is None:
        return RemoteFailure(reason, message, code=code, **metadata)
    if _STALE_KEY in info.metadata:
        kind = Stale
    if kind in (Exhausted, Unavailable) and waits:
        metadata["retry_after_ms"] = retry.retry_delay.ToMilliseconds()
    return kind(reason, message, **metadata)


def _invalid(reason: str, message: str, bad: error_details_pb2.BadRequest) -> Invalid:
    violations = [
        Violation(v.field, v.reason or reason, v.description) for v in bad.field_violations
    ]
    return Invalid(violations or [Violation("", reason, message)], reason)
