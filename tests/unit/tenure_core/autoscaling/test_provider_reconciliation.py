"""What a provider refuses, and what differs between the machines wanted and listed."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tenure_core.autoscaling.provider_errors import (
    BACKOFF,
    CLEAN,
    Backoff,
    ProviderErrorClass,
    after_failure,
    error_class,
)
from tenure_core.autoscaling.reconciliation import (
    Difference,
    Finding,
    Grace,
    SeenMachine,
    WantedMachine,
    reconcile,
)
from tenure_core.timebase import HOUR_MS

CPU = 1000


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("InstanceLimitExceeded", ProviderErrorClass.QUOTA),
        ("InsufficientInstanceCapacity", ProviderErrorClass.CAPACITY),
        ("RequestLimitExceeded", ProviderErrorClass.THROTTLE),
        ("UnauthorizedOperation", ProviderErrorClass.AUTH),
        ("InvalidParameterValue", ProviderErrorClass.BAD_REQUEST),
        ("connection reset", ProviderErrorClass.UNCLEAR),
        ("", ProviderErrorClass.UNCLEAR),
    ],
)
def test_p18_errors_fall_into_classes(code: str, expected: ProviderErrorClass) -> None:
    """What is not known may have been carried out, and is looked up."""
    assert error_class(code) is expected


@given(st.lists(st.sampled_from(ProviderErrorClass), min_size=1, max_size=50))
def test_p18_waits_grow_to_a_limit_and_never_end_in_a_loop(
    causes: list[ProviderErrorClass],
) -> None:
    """Each failure waits at least the class's first and at most its longest time."""
    backoff, now_ms = CLEAN, 0
    for cause in causes:
        backoff = after_failure(backoff, cause, now_ms=now_ms)
        wait = backoff.until_ms - now_ms
        assert BACKOFF[cause].first_ms <= wait <= BACKOFF[cause].longest_ms
        assert not backoff.open_at(backoff.until_ms - 1)
        now_ms = backoff.until_ms


def test_p18_a_quiet_time_forgives() -> None:
    """After hours without failure the next starts at the first wait again."""
    old = Backoff(9, 10, 10, ProviderErrorClass.QUOTA)
    policy = BACKOFF[ProviderErrorClass.QUOTA]
    later = 10 + policy.forgiven_after_ms + 1

    assert after_failure(old, ProviderErrorClass.QUOTA, now_ms=later).failures == 1


def differences(
    wanted: list[WantedMachine], seen: list[SeenMachine], now_ms: int = 0
) -> list[Finding]:
    """Reconcile as owner `me`."""
    return reconcile(wanted, seen, owner="me", now_ms=now_ms, grace=Grace())


def test_p17_an_unanswered_create_is_adopted_by_its_token() -> None:
    """The machine is found by the token that was stored before the provider was asked."""
    found = differences([WantedMachine("t", 0)], [SeenMachine("i", "me", "t")])

    assert found == [Finding(Difference.ADOPT, "i", "t")]


def test_p17_a_second_machine_of_one_token_is_a_duplicate() -> None:
    """Providers that ignore tokens make two; the recorded one stays."""
    seen = [SeenMachine("a", "me", "t"), SeenMachine("b", "me", "t")]

    assert differences([WantedMachine("t", 0, "b")], seen) == [
        Finding(Difference.DUPLICATE, "a", "t", overdue=True)
    ]


def test_orphans_and_losses_are_overdue_only_after_their_grace() -> None:
    """Listings lag in both directions."""
    wanted = [WantedMachine("gone", 0, "g"), WantedMachine("asked", 0)]
    seen = [SeenMachine("o", "me", "unknown", first_seen_ms=0)]

    def overdue(now_ms: int) -> dict[Difference, bool]:
        return {f.difference: f.overdue for f in differences(wanted, seen, now_ms)}

    kinds = (Difference.LOST, Difference.ORPHAN, Difference.UNANSWERED)
    assert overdue(0) == dict.fromkeys(kinds, False)
    assert overdue(HOUR_MS) == dict.fromkeys(kinds, True)


def test_p19_a_tombstone_lingers_and_is_gone() -> None:
    """Deletion is confirmed by the listing, not by the answer."""
    grave = WantedMachine("t", 0, "i", deleted_at_ms=0)

    assert differences([grave], [SeenMachine("i", "me", "t")])[0].difference is (
        Difference.LINGERING
    )
    assert differences([grave], []) == [Finding(Difference.GONE, "i", "t")]


@given(
    st.lists(
        st.builds(
            SeenMachine, st.integers(0, 9).map(str), st.sampled_from(["me", "you", ""]),
            st.sampled_from("abc"),
        ),
        unique_by=lambda machine: machine.machine_id,
    ),
    st.lists(st.builds(WantedMachine, st.sampled_from("abcd"), st.just(0)), max_size=3),
)  # fmt: skip
def test_p01_only_machines_with_our_mark_are_named_for_removal(
    seen: list[SeenMachine], wanted: list[WantedMachine]
) -> None:
    """Foreign machines are reported and nothing more, whatever token they carry."""
    owner = {machine.machine_id: machine.owner for machine in seen}
    for finding in differences(wanted, seen, HOUR_MS):
        if finding.machine_id:
            ours = owner[finding.machine_id] == "me"
            assert ours is (finding.difference is not Difference.FOREIGN)
