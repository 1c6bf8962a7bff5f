"""Suites resource-preset, kernel-preparation and enqueue-check: before a session is queued."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from tests.conformance.backendai_case import Case, Json, Operation, amounts, known, scaled, text

from tenure_core.admission.amounts import minus
from tenure_core.admission.enqueueing import (
    PRIORITY_DEFAULT,
    QUOTA_RULES,
    EnqueueRequest,
    EnqueueRule,
    ImageBounds,
    MemberAsk,
    QueuePolicy,
    refused_by,
)
from tenure_core.admission.preparation import ImageNeeds, MemberGroup, prepare, read_amount
from tenure_core.admission.presets import NodeRoom, PresetAnswer, QuotaLeft, check_presets
from tenure_core.admission.quantities import parse_bytes, plain

_SCOPES: Final = ("keypair", "project", "domain")


def _limit(slots: Mapping[str, str]) -> dict[str, int | None]:
    return {kind: None if n == "Infinity" else scaled(n) for kind, n in slots.items()}


def _presets(case: Json, *, ours: bool) -> PresetAnswer:
    known(case, {*_SCOPES, "agents", "presets"})
    for agent in case["agents"]:
        known(agent, {"id", "group", "capacity", "used", "reserved"})
    return check_presets(
        [
            QuotaLeft(
                _limit(known(case[scope], {"limit", "occupied"})["limit"]),
                amounts(case[scope].get("occupied")),
            )
            for scope in _SCOPES
        ],
        [
            NodeRoom(
                agent["group"],
                minus(
                    amounts(agent["capacity"]),
                    amounts(agent.get("used")),
                    amounts(agent.get("reserved")) if ours else {},
                ),
            )
            for agent in case["agents"]
        ],
        {name: amounts(slots) for name, slots in case["presets"].items()},
        absent_kind_shows_quota=not ours,
    )


def _limit_text(limits: Mapping[str, int | None]) -> dict[str, str]:
    return {kind: "Infinity" if n is None else text(n) for kind, n in limits.items()}


def _printed(found: PresetAnswer) -> Json:
    return {
        "remaining": _limit_text(found.remaining),
        "groups": {pool: _limit_text(limits) for pool, limits in found.pools.items()},
        "allocatable": dict(found.allocatable),
    }


def _check_presets(case: Json) -> Json:
    return _printed(_presets(case, ours=False))


def _check_presets_better(case: Case) -> None:
    """A pool never shows more of a kind than its agents have free, reservations counted."""
    answer = _printed(_presets(case.input, ours=True))
    assert answer["remaining"] == case.expect["remaining"]
    for pool, shown in answer["groups"].items():
        for kind, number in shown.items():
            free = sum(
                scaled(agent["capacity"].get(kind, 0))
                - scaled(agent.get("used", {}).get(kind, 0))
                - scaled(agent.get("reserved", {}).get(kind, 0))
                for agent in case.input["agents"]
                if agent["group"] == pool
            )
            before = case.expect["groups"][pool][kind]
            least = free if before == "Infinity" else min(free, scaled(before))
            assert scaled(number) == least
    for name, allocatable in answer["allocatable"].items():
        assert not allocatable or case.expect["allocatable"][name]


def _prepare_kernels(case: Json) -> Json:
    known(case, {"groups", "image"})
    known(case["image"], {"min", "shmem"})
    groups = [
        MemberGroup(group["role"], group["replicas"], group.get("slots", {}), group.get("shmem"))
        for group in (known(g, {"role", "replicas", "slots", "shmem"}) for g in case["groups"])
    ]
    image = ImageNeeds(case["image"]["min"], case["image"].get("shmem"))
    return {
        "kernels": [
            {
                "role": member.role,
                "idx": member.index,
                "rank": member.rank,
                "hostname": member.host_name,
                "slots": {
                    **member.asked,
                    **{kind: plain(amount) for kind, amount in member.filled.items()},
                },
                "shmem": plain(member.shared_memory),
            }
            for member in prepare(groups, image)
        ]
    }


_RULES: Final = {
    EnqueueRule.MEMBER_COUNT: "container-limit",
    EnqueueRule.PENDING_COUNT: "pending-sessions",
    EnqueueRule.PENDING_AMOUNTS: "pending-resources",
    EnqueueRule.PRIORITY: "priority-limit",
    EnqueueRule.IMAGE_MINIMUM: "image-minimum",
    EnqueueRule.IMAGE_MAXIMUM: "image-maximum",
    EnqueueRule.REQUIRED_KINDS: "required-slots",
    EnqueueRule.REQUESTED_KINDS_SERVED: "requested-slots-served",
    EnqueueRule.IMAGE_KINDS_SERVED: "image-slots-served",
    EnqueueRule.PORTS: "preopen-ports",
}
_KNOWN: Final = ("cpu", "mem", "cuda.shares")
_KERNEL: Final = {"cpu": "1", "mem": "1073741824"}


def _member(kernel: Json) -> MemberAsk:
    known(kernel, {"slots", "shmem", "preopen_ports"})
    shared = kernel.get("shmem")
    return MemberAsk(
        amounts(kernel.get("slots", _KERNEL)),
        0 if shared is None else scaled(plain(parse_bytes(shared))),
        kernel.get("preopen_ports", ()),
    )


def _image_amounts(slots: Mapping[str, str]) -> dict[str, int]:
    return {kind: scaled(plain(read_amount(kind, written))) for kind, written in slots.items()}


def _service_ports(declared: str) -> frozenset[int]:
    return frozenset(int(port) for port in re.findall(r"(?<=[:,\[])\d+", declared))


def _enqueue_request(case: Json, *, ours: bool) -> EnqueueRequest:
    known(
        case,
        {
            "kernels", "policy", "pending_sessions", "pending_slots", "priority", "image",
            "served_slots", "required_slots", "known_slots",
        },
    )  # fmt: skip
    policy = known(
        case.get("policy", {}),
        {
            "max_containers_per_session", "max_pending_sessions", "max_pending_slots",
            "max_priority",
        },
    )  # fmt: skip
    image = known(case.get("image", {}), {"min", "max", "service_ports"})
    served = case.get("served_slots")
    return EnqueueRequest(
        members=[_member(kernel) for kernel in case["kernels"]],
        priority=case.get("priority", None if ours else PRIORITY_DEFAULT),
        policy=QueuePolicy(
            policy.get("max_containers_per_session"),
            policy.get("max_pending_sessions"),
            amounts(policy.get("max_pending_slots")),
            policy.get("max_priority"),
        ),
        pending=case.get("pending_sessions", 0),
        pending_amounts=amounts(case.get("pending_slots")),
        image=ImageBounds(
            _image_amounts(image.get("min", {})),
            _image_amounts(image.get("max", {})) if ours else {},
            _service_ports(image.get("service_ports", "")),
        ),
        known_kinds=frozenset(case.get("known_slots", _KNOWN)),
        served=None if served is None else frozenset(served),
        required=frozenset(case.get("required_slots", ())),
        memory_kind="mem",
    )


def _rejected(case: Json, *, ours: bool) -> dict[str, str]:
    return {
        _RULES[rule]: "quota" if rule in QUOTA_RULES else "invalid"
        for rule in refused_by(_enqueue_request(case, ours=ours))
    }


def _enqueue_check(case: Json) -> Json:
    return {"rejected_by": _rejected(case, ours=False)}


def _enqueue_check_better(case: Case) -> None:
    """The declared maximum is honoured; who names no priority is not refused for the default's."""
    rejected = _rejected(case.input, ours=True)
    declared = _image_amounts(case.input.get("image", {}).get("max", {}))
    over = any(
        scaled(kernel.get("slots", _KERNEL).get(kind, 0)) > most
        for kernel in case.input["kernels"]
        for kind, most in declared.items()
    )
    assert ("image-maximum" in rejected) == over
    if "priority" not in case.input:
        assert "priority-limit" not in rejected
    changed = {"image-maximum", "priority-limit"}
    before = case.expect["rejected_by"]
    assert {rule: kind for rule, kind in rejected.items() if rule not in changed} == {
        rule: kind for rule, kind in before.items() if rule not in changed
    }


OPERATIONS: Final = {
    "check_presets": Operation(_check_presets, _check_presets_better),
    "prepare_kernels": Operation(_prepare_kernels),
    "enqueue_check": Operation(_enqueue_check, _enqueue_check_better),
}
