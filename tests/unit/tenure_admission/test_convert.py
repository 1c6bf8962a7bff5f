"""A lease keeps all it has over the wire and back."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.tenure_admission.records import leases, records

from tenure.admission.v1 import lease_pb2 as pb
from tenure_admission import convert
from tenure_admission.records import LeaseRecord
from tenure_core.leases.lease import Lease


@given(records)
@settings(max_examples=150, deadline=None)
def test_a_record_survives_the_wire(record: LeaseRecord) -> None:
    body = convert.lease_to_wire(record).SerializeToString()

    assert record == convert.lease_of_wire(pb.Lease.FromString(body))
    assert record == convert.decode(convert.encode(record))


@given(records, records, st.booleans())
@settings(max_examples=150, deadline=None)
def test_writing_only_what_changed_writes_the_same(
    before: LeaseRecord, other: LeaseRecord, grows: bool
) -> None:
    """The short way round must never say anything else than the long way."""
    history = before.lease.history + other.lease.history if grows else other.lease.history
    lease = replace(
        other.lease, id=before.lease.id, spec=before.lease.spec, history=history,
        created=before.lease.created,
    )  # fmt: skip
    after = replace(other, lease=lease, trace_parent=before.trace_parent)

    body = convert.encode_after(convert.encode(before), before, after)

    assert convert.lease_to_wire(after) == pb.Lease.FromString(body)


@given(leases)
@settings(max_examples=50, deadline=None)
def test_no_field_of_a_lease_is_forgotten(lease: Lease) -> None:
    """Each field that the contract states is set when the record has it."""
    record = LeaseRecord(lease, updated=1, trace_parent="t")
    wire = convert.lease_to_wire(record)

    assert wire.etag and wire.name == f"leases/{lease.id}"
    assert wire.HasField("exit_code") == (lease.exit_code is not None)
    assert wire.HasField("end_time") == (lease.ended is not None)
    assert not wire.HasField("charge_interval")
    assert not wire.HasField("pending_change")
