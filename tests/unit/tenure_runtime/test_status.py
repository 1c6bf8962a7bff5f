"""Statuses of others: whatever a peer sends, a client gets a domain error."""

from __future__ import annotations

import grpc
import pytest
from google.protobuf.any_pb2 import Any
from google.rpc import error_details_pb2, status_pb2
from hypothesis import given
from hypothesis import strategies as st

from tenure_core.errors import DomainError, Exhausted, NotFound, Unavailable
from tenure_runtime.rpc.status import DETAILS_KEY, RemoteFailure, decode

CODES = [code for code in grpc.StatusCode if code is not grpc.StatusCode.OK]


def failed(
    code: grpc.StatusCode, details: bytes | None, text: str = "text"
) -> grpc.aio.AioRpcError:
    trailers = grpc.aio.Metadata(*([(DETAILS_KEY, details)] if details is not None else []))
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), trailers, text, None)


@given(code=st.sampled_from(CODES), details=st.none() | st.binary())
def test_any_bytes_in_the_details_leave_a_domain_error(
    code: grpc.StatusCode, details: bytes | None
) -> None:
    error = decode(failed(code, details))
    assert isinstance(error, DomainError)
    assert error.reason


@given(
    code=st.sampled_from(CODES),
    reason=st.text(),
    metadata=st.dictionaries(st.text() | st.sampled_from(["code", "self", "reason"]), st.text()),
    damaged=st.binary(),
)
def test_any_error_info_of_others_leaves_a_domain_error(
    code: grpc.StatusCode, reason: str, metadata: dict[str, str], damaged: bytes
) -> None:
    status = status_pb2.Status(code=code.value[0], message="text")
    info = error_details_pb2.ErrorInfo(reason=reason, metadata=metadata)
    status.details.add().Pack(info)
    status.details.append(Any(type_url="type.googleapis.com/google.rpc.RetryInfo", value=damaged))
    assert isinstance(decode(failed(code, status.SerializeToString())), DomainError)


def test_a_damaged_detail_falls_back_to_the_code_and_the_sentence() -> None:
    error = decode(failed(grpc.StatusCode.NOT_FOUND, b"\xff\xff\xff", "gone"))
    assert (type(error), error.reason, error.message) == (NotFound, "NOT_FOUND", "gone")


def test_a_reason_of_another_form_is_replaced_by_the_code() -> None:
    status = status_pb2.Status(code=8, message="text")
    status.details.add().Pack(error_details_pb2.ErrorInfo(reason="rate-limited"))
    error = decode(failed(grpc.StatusCode.RESOURCE_EXHAUSTED, status.SerializeToString()))
    assert (type(error), error.reason) == (Exhausted, "RESOURCE_EXHAUSTED")


@pytest.mark.parametrize("code", CODES)
def test_every_code_alone_is_understood(code: grpc.StatusCode) -> None:
    error = decode(failed(code, None, ""))
    if code is grpc.StatusCode.CANCELLED:
        assert (type(error), error.reason) == (Unavailable, "CALL_DROPPED")
        return
    assert error.reason in (code.name, "INVALID_ARGUMENT")
    assert code.name in error.message
    if isinstance(error, RemoteFailure):
        assert error.code is code
