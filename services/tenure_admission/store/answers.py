"""What a batch answers, and the bytes under which an answer is remembered for repeats."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tenure.admission.v1 import admission_pb2 as calls
from tenure.admission.v1 import lease_pb2
from tenure_admission.ports import BatchCreation, BatchOutcome, ItemRefusal
from tenure_admission.records import Draft
from tenure_core.errors import DomainError, Invalid

OTHER_REFUSED = ItemRefusal(
    "OTHER_ITEM_REFUSED", "Another item was refused, and all_or_none is set."
)


def verdicts(
    batch: BatchCreation, settled: Iterator[DomainError | None]
) -> tuple[list[BatchOutcome], list[Draft]]:
    """Return the outcome of each item and the drafts to store.

    `settled` has one element for each item that is a draft.
    """
    outcomes: list[BatchOutcome] = []
    stored: list[Draft] = []
    for index, item in enumerate(batch.items):
        refusal = next(settled) if isinstance(item, Draft) else item
        if refusal is not None:
            outcomes.append(refusal_of(refusal))
            continue
        assert isinstance(item, Draft)
        outcomes.append(item.body)
        if not (batch.dry and batch.dry[index]):
            stored.append(item)
    if batch.all_or_none and any(isinstance(outcome, ItemRefusal) for outcome in outcomes):
        return [OTHER_REFUSED if isinstance(each, bytes) else each for each in outcomes], []
    return outcomes, stored


def refusal_of(error: DomainError) -> ItemRefusal:
    """Return an error as an item's verdict, with all violations in its message."""
    if isinstance(error, Invalid):
        text = "; ".join(f"{each.field}: {each.description}" for each in error.violations)
        first = error.violations[0].reason
        return ItemRefusal(first if len(error.violations) == 1 else error.reason, text)
    return ItemRefusal(error.reason, error.message)


def response_of(outcomes: Sequence[BatchOutcome]) -> calls.BatchCreateLeasesResponse:
    """Return the outcomes as they are answered."""
    response = calls.BatchCreateLeasesResponse()
    for outcome in outcomes:
        if isinstance(outcome, ItemRefusal):
            response.results.add(reason=outcome.reason, message=outcome.message)
        else:
            response.results.add().lease.ParseFromString(outcome)
    return response


def bytes_of(outcomes: Sequence[BatchOutcome]) -> bytes:
    """Return the bytes under which a batch's outcomes are remembered."""
    return response_of(outcomes).SerializeToString()


def outcomes_of(remembered: bytes) -> list[BatchOutcome]:
    """Return the outcomes that `bytes_of` made the bytes of."""
    response = calls.BatchCreateLeasesResponse.FromString(remembered)
    return [
        ItemRefusal(result.reason, result.message) if result.reason else _body(result.lease)
        for result in response.results
    ]


def bytes_of_leases(bodies: Sequence[bytes]) -> bytes:
    """Return the bytes under which the answer of a joint change is remembered."""
    response = calls.ConfirmLeasesResponse()
    for body in bodies:
        response.leases.add().ParseFromString(body)
    return response.SerializeToString()


def leases_of(remembered: bytes) -> list[bytes]:
    """Return the leases that `bytes_of_leases` made the bytes of."""
    return [_body(each) for each in calls.ConfirmLeasesResponse.FromString(remembered).leases]


def _body(lease: lease_pb2.Lease) -> bytes:
    return lease.SerializeToString()
