"""Which items of a batch are refused, against a slow and obvious model."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tenure_admission.batches import Known, settle_batch
from tenure_admission.records import OPEN_LEASES, Draft, Limit
from tenure_core.errors import DomainError, Invalid


def a_draft(lease_id: str, *needs: str, owner: str = "ann", sees_all: bool = False) -> Draft:
    return Draft(lease_id, owner, "p", "default", 1, {"cpu": 1}, 0, b"", needs, sees_all=sees_all)


def reason(refusal: DomainError | None) -> str:
    if isinstance(refusal, Invalid):
        return refusal.violations[0].reason
    return refusal.reason if refusal else ""


def model(drafts: list[Draft], stored: set[str]) -> list[str]:
    """Decide item by item until nothing more can be decided."""
    verdicts: dict[int, str] = {}
    first: dict[str, int] = {}
    for index, draft in enumerate(drafts):
        if draft.id in stored or draft.id in first:
            verdicts[index] = "LEASE_EXISTS"
        else:
            first[draft.id] = index
    accepted = set(stored)
    while True:
        ready = [
            index
            for index in first.values()
            if index not in verdicts and set(drafts[index].dependencies) <= accepted
        ]
        if not ready:
            break
        for index in ready:
            verdicts[index] = ""
            accepted.add(drafts[index].id)
    for index in first.values():
        if index in verdicts:
            continue
        reached, edge = set(), {drafts[index].id}
        while edge:
            following = {
                need
                for each in edge
                if each in first and each not in accepted
                for need in drafts[first[each]].dependencies
            }
            edge = following - reached
            reached |= following
        looping = drafts[index].id in reached
        verdicts[index] = "DEPENDENCY_CYCLE" if looping else "DEPENDENCY_NOT_FOUND"
    return [verdicts[index] for index in range(len(drafts))]


names = st.sampled_from("abcdefgh")


@given(
    st.lists(st.tuples(names, st.sets(names, max_size=2)), max_size=8), st.sets(names, max_size=2)
)
@settings(max_examples=400, deadline=None)
def test_verdicts_are_those_of_the_model(
    items: list[tuple[str, set[str]]], stored: set[str]
) -> None:
    drafts = [a_draft(lease_id, *sorted(needs)) for lease_id, needs in items]
    known = Known(dict.fromkeys(stored, "ann"))

    verdicts = [reason(refusal) for refusal in settle_batch(drafts, known)]

    # Between two cycles an item is on neither; saying that it waits for ever is right for it too.
    expected = model(drafts, stored)
    for verdict, right in zip(verdicts, expected, strict=True):
        assert verdict == right or (
            verdict == "DEPENDENCY_CYCLE" and right == "DEPENDENCY_NOT_FOUND"
        )
    assert [v == "" for v in verdicts] == [right == "" for right in expected]


def test_an_item_outside_a_cycle_is_not_said_to_be_in_it() -> None:
    drafts = [a_draft("a", "b"), a_draft("b", "a"), a_draft("behind", "a"), a_draft("lost", "x")]

    verdicts = [reason(refusal) for refusal in settle_batch(drafts, Known({}))]

    assert verdicts == [
        "DEPENDENCY_CYCLE",
        "DEPENDENCY_CYCLE",
        "DEPENDENCY_NOT_FOUND",
        "DEPENDENCY_NOT_FOUND",
    ]


def test_open_leases_are_counted_as_items_are_accepted() -> None:
    limits = [Limit("owner", "ann", OPEN_LEASES, 3), Limit("project", "other", OPEN_LEASES, 0)]
    known = Known({}, limits, {("owner", "ann", OPEN_LEASES): 1})
    drafts = [a_draft(each) for each in "abc"] + [a_draft("d", owner="bob")]

    verdicts = [reason(refusal) for refusal in settle_batch(drafts, known)]

    assert verdicts == ["", "", "LEASE_LIMIT_REACHED", ""]


def test_those_who_see_all_may_depend_on_all() -> None:
    known = Known({"theirs": "bob"})

    verdicts = [
        reason(refusal)
        for refusal in settle_batch(
            [a_draft("a", "theirs"), a_draft("b", "theirs", sees_all=True)], known
        )
    ]

    assert verdicts == ["DEPENDENCY_NOT_FOUND", ""]
