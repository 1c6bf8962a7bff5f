"""Every limit that the contract states, at its edge and one beyond."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from google.protobuf.duration_pb2 import Duration

from tenure.admission.v1 import admission_pb2 as calls
from tenure.admission.v1 import lease_pb2 as pb
from tenure_admission import validation
from tenure_admission.clients import PolledPools

NOW = 1_800_000_000_000
POOLS = PolledPools(None, None)
YEARS_10_S = 3_653 * 86_400

Change = Callable[[pb.Lease], object]


def a_lease() -> pb.Lease:
    lease = pb.Lease(
        terms=pb.Terms(best_effort=pb.BestEffortTerms()), node_count=1, amounts={"cpu": 1}
    )
    lease.duration.FromSeconds(60)
    return lease


def reasons(change: Change) -> set[tuple[str, str]]:
    lease = a_lease()
    change(lease)
    found = validation.create(calls.CreateLeaseRequest(lease=lease), NOW, POOLS)
    return {(each.field.removeprefix("lease."), each.reason) for each in found}


def advance(seconds_ahead: int, nanos: int = 0) -> Change:
    def change(lease: pb.Lease) -> None:
        start = lease.terms.advance.start_time
        start.FromMilliseconds(NOW + seconds_ahead * 1_000)
        start.nanos += nanos

    return change


def deadline(seconds_ahead: int, earliest: int | None = None) -> Change:
    def change(lease: pb.Lease) -> None:
        terms = lease.terms.deadline
        terms.deadline_time.FromMilliseconds(NOW + seconds_ahead * 1_000)
        if earliest is not None:
            terms.earliest_start_time.FromMilliseconds(NOW + earliest * 1_000)

    return change


def duration(seconds: int, nanos: int = 0) -> Change:
    return lambda lease: lease.duration.CopyFrom(Duration(seconds=seconds, nanos=nanos))


def grace(milliseconds: int) -> Change:
    return lambda lease: lease.stop_grace_duration.FromMilliseconds(milliseconds)


def put(field: str, value: object) -> Change:
    return lambda lease: setattr(lease, field, value)


def many(field: str, count: int, key: int = 1, value: int = 1) -> Change:
    def change(lease: pb.Lease) -> None:
        for number in range(count):
            getattr(lease, field)[str(number).rjust(key, "k")] = "v" * value

    return change


def kinds(count: int) -> Change:
    return lambda lease: lease.amounts.update({f"k{number}": 1 for number in range(count)})


def only(**amounts: int) -> Change:
    def change(lease: pb.Lease) -> None:
        lease.amounts.clear()
        lease.amounts.update(amounts)

    return change


def command(*items: str) -> Change:
    return lambda lease: lease.work.command.extend(items)


def environment(**variables: str) -> Change:
    return lambda lease: lease.work.environment.update(variables)


def dependencies(count: int, name: str = "leases/x") -> Change:
    return lambda lease: [lease.dependencies.add(lease=name) for _ in range(count)]


ALLOWED: list[Change] = [
    put("project", "p" * 63),
    put("pool", "p" * 63),
    put("node_count", 10_000),
    put("priority", 1_000_000),
    put("priority", -1_000_000),
    put("max_attempts", 100),
    put("max_attempts", 0),
    duration(1),
    duration(366 * 86_400),
    duration(1, 999_000_000),
    advance(0),
    advance(YEARS_10_S),
    deadline(60),
    deadline(100, 40),
    deadline(60, -1_000),
    grace(0),
    grace(600_000),
    many("labels", 64, key=63, value=63),
    many("node_selector", 32, key=63, value=63),
    kinds(31),
    only(cpu=0, memory=2**53 - 1),
    command(*["x"] * 256),
    command("x", "y" * (64 * 1024 - 1)),
    environment(**{f"E{n}": "" for n in range(256)}),
    environment(**{"e" * 255: "v" * 32 * 1024}),
    dependencies(64),
    put("trace_parent", "00-" + "a" * 32 + "-" + "b" * 16 + "-01"),
    lambda lease: setattr(lease.work, "image", "i" * 1_024),
    lambda lease: lease.terms.immediate.SetInParent(),
]

REFUSED: list[tuple[Change, str, str]] = [
    (put("project", "p" * 64), "project", "LENGTH_OUT_OF_RANGE"),
    (put("pool", "p" * 64), "pool", "LENGTH_OUT_OF_RANGE"),
    (put("pool", "\0"), "pool", "NUL_CHARACTER"),
    (put("node_count", 0), "node_count", "OUT_OF_RANGE"),
    (put("node_count", 10_001), "node_count", "OUT_OF_RANGE"),
    (put("priority", 1_000_001), "priority", "OUT_OF_RANGE"),
    (put("priority", -1_000_001), "priority", "OUT_OF_RANGE"),
    (put("max_attempts", 101), "max_attempts", "OUT_OF_RANGE"),
    (put("max_attempts", -1), "max_attempts", "OUT_OF_RANGE"),
    (put("on_failure", 9), "on_failure", "VALUE_UNKNOWN"),
    (put("on_loss", 9), "on_loss", "VALUE_UNKNOWN"),
    (duration(0, 999_000_000), "duration", "OUT_OF_RANGE"),
    (duration(366 * 86_400, 1_000_000), "duration", "OUT_OF_RANGE"),
    (duration(1, 1), "duration", "NOT_WHOLE_MILLISECONDS"),
    (lambda lease: lease.ClearField("duration"), "duration", "REQUIRED"),
    (lambda lease: lease.ClearField("terms"), "terms", "REQUIRED"),
    (advance(-1), "terms.advance.start_time", "TIME_IN_PAST"),
    (advance(YEARS_10_S + 1), "terms.advance.start_time", "OUT_OF_RANGE"),
    (advance(1, 1), "terms.advance.start_time", "NOT_WHOLE_MILLISECONDS"),
    (
        lambda lease: lease.terms.advance.SetInParent(),
        "terms.advance.start_time",
        "REQUIRED",
    ),
    (deadline(-1), "terms.deadline.deadline_time", "TIME_IN_PAST"),
    (deadline(59), "terms.deadline.deadline_time", "DEADLINE_TOO_EARLY"),
    (deadline(100, 41), "terms.deadline.deadline_time", "DEADLINE_TOO_EARLY"),
    (grace(600_001), "stop_grace_duration", "OUT_OF_RANGE"),
    (grace(-1), "stop_grace_duration", "OUT_OF_RANGE"),
    (many("labels", 65), "labels", "TOO_MANY"),
    (many("labels", 1, key=64), "labels[" + "0".rjust(64, "k") + "]", "LENGTH_OUT_OF_RANGE"),
    (many("labels", 1, value=64), "labels[0]", "LENGTH_OUT_OF_RANGE"),
    (many("node_selector", 33), "node_selector", "TOO_MANY"),
    (kinds(32), "amounts", "TOO_MANY"),
    (only(), "amounts", "REQUIRED"),
    (only(cpu=0), "amounts", "REQUIRED"),
    (only(cpu=2**53), "amounts[cpu]", "OUT_OF_RANGE"),
    (only(cpu=-1), "amounts[cpu]", "OUT_OF_RANGE"),
    (only(CPU=1), "amounts[CPU]", "KIND_INVALID"),
    (command(*["x"] * 257), "work.command", "TOO_LARGE"),
    (command("x", "y" * 64 * 1024), "work.command", "TOO_LARGE"),
    (command("x", "é" * 33_000), "work.command", "TOO_LARGE"),
    (command(""), "work.command[0]", "REQUIRED"),
    (command("x", "\0"), "work.command", "NUL_CHARACTER"),
    (environment(**{f"E{n}": "" for n in range(257)}), "work.environment", "TOO_MANY"),
    (environment(**{"e" * 256: ""}), f"work.environment[{'e' * 64}]", "TOO_LARGE"),
    (environment(E="v" * (32 * 1024 + 1)), "work.environment[E]", "TOO_LARGE"),
    (environment(**{"A=B": ""}), "work.environment[A=B]", "ENVIRONMENT_INVALID"),
    (dependencies(65), "dependencies", "TOO_MANY"),
    (dependencies(1, "x"), "dependencies[0].lease", "NAME_INVALID"),
    (put("trace_parent", "x"), "trace_parent", "TRACE_PARENT_INVALID"),
    (lambda lease: setattr(lease.work, "image", "i" * 1_025), "work.image", "LENGTH_OUT_OF_RANGE"),
]


@pytest.mark.parametrize("change", ALLOWED)
def test_what_lies_at_the_edge_is_allowed(change: Change) -> None:
    assert reasons(change) == set()


@pytest.mark.parametrize(("change", "field", "reason"), REFUSED)
def test_what_lies_beyond_is_refused(change: Change, field: str, reason: str) -> None:
    assert reasons(change) == {(field, reason)}


@pytest.mark.parametrize(
    ("lease_id", "allowed"),
    [("a", True), ("a" * 63, True), ("a-1", True), ("a" * 64, False), ("A", False),
     ("-a", False), ("a-", False), ("a_b", False), ("a/b", False), ("é", False)],
)  # fmt: skip
def test_an_id_is_lower_case_letters_digits_and_hyphens(lease_id: str, allowed: bool) -> None:
    request = calls.CreateLeaseRequest(lease=a_lease(), lease_id=lease_id)

    assert (validation.create(request, NOW, POOLS) == []) == allowed
