from __future__ import annotations

from decimal import Decimal

import pytest

from tenure_core.admission.enqueueing import (
    EnqueueRequest,
    EnqueueRule,
    ImageBounds,
    MemberAsk,
    QueuePolicy,
    effective_priority,
    refused_by,
)
from tenure_core.admission.idle import IdlePhase, IdleVerdict, network
from tenure_core.admission.preparation import ImageNeeds, MemberGroup, prepare, shared_memory
from tenure_core.admission.presets import NodeRoom, QuotaLeft, check_presets
from tenure_core.admission.quantities import format_bytes, parse_bytes, plain
from tenure_core.admission.slots import SlotError, SlotFault, SlotType, from_request
from tenure_core.admission.tick_clock import TickClock, tick, without

MIB = 2**20


def _ask(**amounts: int) -> MemberAsk:
    return MemberAsk(amounts)


def test_every_violation_is_reported_in_order() -> None:
    request = EnqueueRequest(
        members=[_ask(cpu=9), MemberAsk({"cpu": 1}, ports=(2200,))],
        priority=7,
        policy=QueuePolicy(members_max=1, pending_max=1, priority_max=5),
        pending=1,
        image=ImageBounds(most={"cpu": 8}),
        required=frozenset({"memory"}),
        served=frozenset({"memory"}),
    )

    assert refused_by(request) == [
        EnqueueRule.MEMBER_COUNT,
        EnqueueRule.PENDING_COUNT,
        EnqueueRule.PRIORITY,
        EnqueueRule.IMAGE_MAXIMUM,
        EnqueueRule.REQUIRED_KINDS,
        EnqueueRule.REQUESTED_KINDS_SERVED,
        EnqueueRule.PORTS,
    ]


def test_a_limit_of_zero_is_no_limit() -> None:
    policy = QueuePolicy(members_max=0, pending_max=0)

    assert refused_by(EnqueueRequest([_ask(cpu=1)] * 9, policy=policy, pending=99)) == []


def test_who_names_no_priority_is_not_refused_for_the_defaults_sake() -> None:
    capped = EnqueueRequest([_ask(cpu=1)], policy=QueuePolicy(priority_max=5))

    assert effective_priority(capped) == 5
    assert refused_by(capped) == []
    assert effective_priority(EnqueueRequest([_ask(cpu=1)])) == 10


def test_shared_memory_counts_on_top_of_the_images_least_memory() -> None:
    image = ImageBounds(least={"memory": 256 * MIB})

    def refused(memory: int, shared: int) -> bool:
        ask = MemberAsk({"memory": memory * MIB}, shared * MIB)
        return bool(refused_by(EnqueueRequest([ask], image=image)))

    assert [refused(300, 64), refused(320, 64), refused(256, 0)] == [True, False, False]


def test_members_are_numbered_by_role_and_ranked_over_all() -> None:
    groups = [MemberGroup("main", 1, {"cpu": "1"}), MemberGroup("sub", 2, {"cpu": "1"})]

    members = prepare(groups, ImageNeeds({}))

    assert [(m.host_name, m.rank) for m in members] == [("main1", 0), ("sub1", 1), ("sub2", 2)]


def test_the_owners_shared_memory_must_be_readable_and_the_images_need_not() -> None:
    assert shared_memory(None, "lots") == Decimal(64 * MIB)
    with pytest.raises(ValueError, match="lots"):
        shared_memory("lots", None)


def test_a_pool_shows_nothing_of_a_kind_that_none_of_its_nodes_has() -> None:
    quota = QuotaLeft({"cpu": 10, "gpu": 2, "memory": None}, {"cpu": 4})
    nodes = [NodeRoom("p", {"cpu": 8, "memory": 64})]

    found = check_presets([quota], nodes, {"s": {"cpu": 6}, "l": {"cpu": 7}, "g": {"gpu": 1}})

    assert found.remaining == {"cpu": 6, "gpu": 2, "memory": None}
    assert found.pools == {"p": {"cpu": 6, "gpu": 0, "memory": 64}}
    assert found.allocatable == {"s": True, "l": False, "g": False}


def test_use_between_two_looks_moves_the_deadline() -> None:
    def look(last_used: int | None) -> IdleVerdict:
        return network(40, 30, 35, in_flight=False, connections=0, last_used=last_used)

    assert look(None) == IdleVerdict(IdlePhase.IDLE_EXPIRED, 35)
    assert look(20) == IdleVerdict(IdlePhase.IDLE, 50)


def test_members_of_a_clock_that_are_gone_keep_no_share_of_the_interval() -> None:
    clock = tick(TickClock(), "dead", 1000, 60).clock
    both = tick(clock, "live", 1000, 60)

    assert both.delay == 40
    assert tick(without(both.clock, ["dead"]), "live", 1001, 60).delay == 30


@pytest.mark.parametrize("text", ["", "g", "1gi", "1.5", "1e3", "--1k", "1 2k", "k1", "1..2k", "_"])
def test_what_is_no_amount_of_bytes_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"write for example|unit"):
        parse_bytes(text)


@pytest.mark.parametrize("number", [0, 1, 1023, 1024, 10**6, 2**40, 2**60 + 1])
def test_plain_bytes_read_back_as_they_were(number: int) -> None:
    assert parse_bytes(plain(Decimal(number))) == number
    assert format_bytes(Decimal(number))


def test_an_unknown_kind_may_be_named_with_zero_only() -> None:
    types = {"cpu": SlotType.COUNT}

    assert from_request({"tpu": "0", "cpu": None}, types) == {"cpu": 0}
    with pytest.raises(SlotError) as caught:
        from_request({"tpu": "1"}, types)
    assert caught.value.fault is SlotFault.UNKNOWN
