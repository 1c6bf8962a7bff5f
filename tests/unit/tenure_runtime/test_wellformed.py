"""Requests that no service can store: refused at the edge, whichever call they are for."""

from __future__ import annotations

import grpc
import pytest
from google.protobuf.message import Message
from google.protobuf.struct_pb2 import ListValue, Struct, Value
from hypothesis import given
from hypothesis import strategies as st
from tests.support import echo
from tests.support.echo import METHODS, SERVICE, Echo
from tests.support.servers import serving

from tenure.admission.v1 import admission_pb2 as apb
from tenure.admission.v1 import lease_pb2 as lpb
from tenure_core.errors import Invalid
from tenure_runtime.rpc.status import decode
from tenure_runtime.rpc.wellformed import TEXT_MAX, VALUES_MAX, Refused, reading


def refusals(message: Message) -> list[tuple[str, str]]:
    """Return field and reason of everything that makes a message ill-formed."""
    read = reading(type(message).FromString)(message.SerializeToString())
    if isinstance(read, Refused):
        return [(each.field, each.reason) for each in read.violations]
    assert read == message
    return []


def ask(**fields: object) -> apb.CreateLeaseRequest:
    return apb.CreateLeaseRequest(lease=lpb.Lease(**fields))


@pytest.mark.parametrize(
    ("seconds", "nanos", "is_fine"),
    [
        (-62_135_596_800, 0, True),
        (253_402_300_799, 999_999_999, True),
        (-62_135_596_801, 0, False),
        (253_402_300_800, 0, False),
        (2**62, 0, False),
        (0, 1_000_000_000, False),
        (0, -1, False),
    ],
)
def test_an_instant_outside_the_range_of_its_type_is_refused(
    seconds: int, nanos: int, is_fine: bool
) -> None:
    at = {"seconds": seconds, "nanos": nanos}
    field = "lease.terms.deadline.earliest_start_time"
    found = refusals(ask(terms=lpb.Terms(deadline={"earliest_start_time": at})))
    assert found == ([] if is_fine else [(field, "TIME_MALFORMED")])


@pytest.mark.parametrize(
    ("seconds", "nanos", "is_fine"),
    [
        (315_576_000_000, 999_999_999, True),
        (-1, -999_999_999, True),
        (0, -5, True),
        (315_576_000_001, 0, False),
        (1, 2_000_000_000, False),
        (5, -6_000_000, False),
        (-5, 6_000_000, False),
    ],
)
def test_a_span_outside_the_range_of_its_type_is_refused(
    seconds: int, nanos: int, is_fine: bool
) -> None:
    found = refusals(ask(duration={"seconds": seconds, "nanos": nanos}))
    assert found == ([] if is_fine else [("lease.duration", "TIME_MALFORMED")])


def test_all_that_is_ill_formed_is_named_at_once_with_its_path() -> None:
    bad = {"seconds": 2**60}
    placements = [{"node": "nodes/a"}, {"interval": {"start_time": bad, "end_time": bad}}]
    request = ask(
        project="a\0b",
        labels={"x": "\0", "y\0": "z"},
        work={"command": ["sh", "\0"]},
        placements=placements,
        duration=bad,
    )
    wanted = [
        ("lease.duration", "TIME_MALFORMED"),
        ("lease.labels (a key)", "NUL_CHARACTER"),
        ("lease.labels[x]", "NUL_CHARACTER"),
        ("lease.placements[1].interval.end_time", "TIME_MALFORMED"),
        ("lease.placements[1].interval.start_time", "TIME_MALFORMED"),
        ("lease.project", "NUL_CHARACTER"),
        ("lease.work.command[1]", "NUL_CHARACTER"),
    ]
    assert sorted(refusals(request)) == wanted


def test_messages_within_maps_and_lists_are_looked_at_too() -> None:
    value = Struct(fields={"a": Value(list_value=ListValue(values=[Value(string_value="\0")]))})
    assert refusals(value) == [("fields[a].list_value.values[0].string_value", "NUL_CHARACTER")]
    assert refusals(Struct(fields={"a": Value(string_value="b")})) == []


@given(st.text(), st.dictionaries(st.text(), st.text()), st.integers(-(2**63), 2**63 - 1))
def test_only_nul_makes_a_text_ill_formed(
    project: str, labels: dict[str, str], amount: int
) -> None:
    request = ask(project=project, labels=labels, amounts={"cpu": amount})
    has_nul = "\0" in project or any("\0" in k + v for k, v in labels.items())
    assert bool(refusals(request)) == has_nul


def test_every_text_and_every_list_of_values_has_a_limit() -> None:
    long, most = "x" * (TEXT_MAX + 1), "x" * TEXT_MAX
    request = ask(labels={"a": long, long: "b"}, work={"command": [most, long]}, etag=long)
    assert sorted(refusals(request)) == [
        ("lease.etag", "TOO_LONG"),
        ("lease.labels (a key)", "TOO_LONG"),
        ("lease.labels[a]", "TOO_LONG"),
        ("lease.work.command[1]", "TOO_LONG"),
    ]
    state = lpb.Lease.STATE_ACTIVE
    assert refusals(apb.ListLeasesRequest(states=[state] * VALUES_MAX, page_token=most)) == []
    found = refusals(apb.ListLeasesRequest(states=[state] * (VALUES_MAX + 1), page_token=long))
    assert sorted(found) == [("page_token", "TOO_LONG"), ("states", "TOO_MANY")]


@pytest.mark.parametrize("data", [b"\xff\xff\xff", b"\x0a\x02\xff\xfe", b"\x0a\x7fx"])
async def test_bytes_that_are_no_message_get_an_error_with_its_reason(data: bytes) -> None:
    async with serving(echo.register, Echo(), SERVICE, methods=METHODS) as served:
        client = await served.client()
        one = client.channel.unary_unary(f"/{SERVICE}/Echo")(data, metadata=client._metadata())
        many = client.channel.unary_stream(f"/{SERVICE}/Tail")(data, metadata=client._metadata())
        for answer in (one, many.read()):
            with pytest.raises(grpc.aio.AioRpcError) as raw:
                await answer
            error = decode(raw.value)
            assert isinstance(error, Invalid)
            assert [each.reason for each in error.violations] == ["MESSAGE_MALFORMED"]


async def test_who_may_not_call_does_not_learn_what_is_wrong_with_the_message() -> None:
    async with serving(echo.register, Echo(), SERVICE, methods=METHODS) as served:
        client = await served.client()
        with pytest.raises(grpc.aio.AioRpcError) as raw:
            await client.channel.unary_unary(f"/{SERVICE}/Echo")(b"\xff\xff\xff")
    assert decode(raw.value).reason == "API_KEY_MISSING"
