"""Hypothesis strategies and builders for lease records."""

from __future__ import annotations

from hypothesis import strategies as st

from tenure_admission.records import ChangeVerdict, CounterOffer, LeaseRecord, PendingChange
from tenure_core.leases.lease import (
    Advance,
    BestEffort,
    Deadline,
    Dependency,
    DependencyCondition,
    HistoryEntry,
    Immediate,
    Lease,
    LeaseSpec,
    OnFailure,
    OnLoss,
    Placement,
    Work,
)
from tenure_core.leases.states import LeaseState
from tenure_core.resources import ResourceVector
from tenure_core.timebase import FOREVER, Interval

instants = st.integers(1, 4_000_000_000_000)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
ids = st.text("abc123-", min_size=1, max_size=6)
maps = st.dictionaries(texts, texts, max_size=3)
spans = st.builds(
    lambda start, length: Interval(start, FOREVER if length is None else start + length),
    instants,
    st.none() | st.integers(1, 10**9),
)
terms = (
    st.just(Immediate())
    | st.just(BestEffort())
    | st.builds(Advance, instants)
    | st.builds(Deadline, instants, st.none() | instants)
)
specs = st.builds(
    LeaseSpec,
    owner=ids,
    project=ids,
    pool=ids,
    terms=terms,
    node_count=st.integers(1, 10_000),
    amounts=st.dictionaries(ids, st.integers(1, 2**53 - 1), min_size=1, max_size=3).map(
        ResourceVector
    ),
    duration_ms=st.integers(1_000, 10**9),
    priority=st.integers(-1_000_000, 1_000_000),
    preemptible=st.booleans(),
    work=st.builds(Work, st.lists(texts, max_size=3).map(tuple), maps, texts),
    on_failure=st.sampled_from(OnFailure),
    max_attempts=st.integers(1, 100),
    on_loss=st.sampled_from(OnLoss),
    dependencies=st.lists(
        st.builds(Dependency, ids, st.sampled_from(DependencyCondition)), max_size=2
    ).map(tuple),
    labels=maps,
    node_selector=maps,
    spread=st.booleans(),
    stop_grace_ms=st.integers(0, 600_000),
)
entries = st.builds(
    HistoryEntry, instants, st.sampled_from(LeaseState), texts, texts, st.integers(0, 9), ids
)
leases = st.builds(
    Lease,
    id=ids,
    spec=specs,
    state=st.sampled_from(LeaseState),
    created=instants,
    version=st.integers(1, 10**9),
    attempt=st.integers(0, 9),
    reason=texts,
    message=texts,
    predicted_start=st.none() | instants,
    started=st.none() | instants,
    ended=st.none() | instants,
    remaining_ms=st.integers(0, 10**9),
    placements=st.lists(st.builds(Placement, st.integers(0, 9), ids, spans), max_size=3).map(tuple),
    exit_code=st.none() | st.integers(-128, 255),
    preemptions=st.integers(0, 9),
    failures=st.integers(0, 9),
    history=st.lists(entries, max_size=4).map(tuple),
)
offers = st.builds(
    CounterOffer,
    st.none() | instants,
    st.none() | st.integers(1, 10**9),
    st.integers(0, 9),
    texts,
)
changes = st.builds(
    PendingChange,
    change_id=ids,
    requested=instants,
    duration_ms=st.none() | st.integers(1, 10**9),
    start=st.none() | instants,
    node_count=st.integers(0, 9),
    priority=st.none() | st.integers(-5, 5),
    verdict=st.sampled_from(ChangeVerdict),
    reason=texts,
    message=texts,
    counter_offers=st.lists(offers, max_size=2).map(tuple),
)
records = st.builds(
    LeaseRecord,
    lease=leases,
    updated=instants,
    trace_parent=texts,
    charge=st.none() | spans,
    change=st.none() | changes,
)


def a_record(state: LeaseState = LeaseState.PENDING, **fields: object) -> LeaseRecord:
    """Return a small record in a state, charged if it holds."""
    from dataclasses import replace

    from tenure_core.leases.states import HOLDING

    spec = LeaseSpec("ann", "p", "default", BestEffort(), 2, ResourceVector({"cpu": 1_000}), 60_000)
    lease = Lease("x", spec, state, created=1_000, version=3, attempt=1, remaining_ms=60_000)
    charge = Interval(10_000, 70_000) if state in HOLDING else None
    return LeaseRecord(replace(lease, **fields), updated=2_000, charge=charge)
