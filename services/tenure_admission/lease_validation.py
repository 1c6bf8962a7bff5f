"""A lease as asked for → violations: the limits stated beside its fields in the contract."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final, Protocol

from google.protobuf.timestamp_pb2 import Timestamp

from tenure.admission.v1 import lease_pb2 as pb
from tenure.type.v1 import work_pb2
from tenure_admission.part_validation import label, labels, lease_name, length, text
from tenure_admission.pool_view import PoolView
from tenure_core.errors import Violation
from tenure_core.resources import AMOUNT_MAX, KINDS_MAX, is_kind
from tenure_core.timebase import DAY_MS, MINUTE_MS, SECOND_MS, Millis
from tenure_runtime.rpc.wire import span_to_millis, to_millis

NODE_COUNT_MAX: Final = 10_000
DURATION_MS_MIN: Final[Millis] = SECOND_MS
DURATION_MS_MAX: Final[Millis] = 366 * DAY_MS
PRIORITY_MAX: Final = 1_000_000
ATTEMPTS_MAX: Final = 100
DEPENDENCIES_MAX: Final = 64
LABELS_MAX: Final = 64
SELECTOR_MAX: Final = 32
STOP_GRACE_MS_MAX: Final[Millis] = 10 * MINUTE_MS
HOLD_MS_MAX: Final[Millis] = DAY_MS
AHEAD_MS_MAX: Final[Millis] = 3_653 * DAY_MS
MESSAGE_LENGTH_MAX: Final = 1_000
COMMAND_ITEMS_MAX: Final = 256
COMMAND_BYTES_MAX: Final = 64 * 1024
ENVIRONMENT_MAX: Final = 256
ENVIRONMENT_NAME_BYTES_MAX: Final = 255
ENVIRONMENT_VALUE_BYTES_MAX: Final = 32 * 1024
SECRETS_BYTES_MAX: Final = 64 * 1024
IMAGE_LENGTH_MAX: Final = 1_024

STATES: Final = frozenset(number for number in pb.Lease.State.values() if number)
_ON_FAILURE: Final = frozenset(pb.Lease.OnFailure.values())
_ON_LOSS: Final = frozenset(work_pb2.OnLoss.values())
_CONDITIONS: Final = frozenset(pb.Dependency.Condition.values())

_TRACE_PARENT: Final = re.compile(r"00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


class Pools(Protocol):
    """What is known of the pools; see `ports.PoolDirectory`."""

    def exists(self, pool: str) -> bool | None:
        """Say whether the pool exists, None when that is not known."""
        ...

    def view(self, pool: str) -> PoolView | None:
        """Return what is known of the pool's nodes, None for nothing."""
        ...


def lease(wanted: pb.Lease, field: str, now: Millis, pools: Pools) -> Iterator[Violation]:
    """Yield everything that is wrong with a lease as asked for.

    Some 8 µs for a usual one: what is not there is not looked at further.
    """
    if wanted.project:
        yield from label(f"{field}.project", wanted.project)
    if wanted.pool:
        yield from label(f"{field}.pool", wanted.pool)
    for check in FIELD_CHECKS.values():
        yield from check(wanted, field, now)
    shaped = True
    for violation in amounts(f"{field}.amounts", wanted.amounts):
        shaped = False
        yield violation
    if wanted.HasField("work"):
        yield from work(f"{field}.work", wanted.work)
    if wanted.on_failure not in _ON_FAILURE:
        yield Violation(f"{field}.on_failure", "VALUE_UNKNOWN", "is FAIL or RESTART")
    if wanted.on_loss not in _ON_LOSS:
        yield Violation(f"{field}.on_loss", "VALUE_UNKNOWN", "is STOP or KEEP")
    if not 0 <= wanted.max_attempts <= ATTEMPTS_MAX:
        text_ = f"is 1 to {ATTEMPTS_MAX}, not {wanted.max_attempts}"
        yield Violation(f"{field}.max_attempts", "OUT_OF_RANGE", text_)
    if wanted.dependencies:
        yield from dependencies(f"{field}.dependencies", wanted)
    if wanted.node_selector:
        yield from labels(f"{field}.node_selector", wanted.node_selector, SELECTOR_MAX)
    if wanted.HasField("stop_grace_duration"):
        path = f"{field}.stop_grace_duration"
        yield from length(path, wanted.stop_grace_duration, 0, STOP_GRACE_MS_MAX)
    if wanted.HasField("hold_duration"):
        yield from hold(f"{field}.hold_duration", wanted, now)
    if wanted.trace_parent and not _TRACE_PARENT.fullmatch(wanted.trace_parent):
        yield Violation(f"{field}.trace_parent", "TRACE_PARENT_INVALID", "is a W3C traceparent")
    yield from pool_fits(wanted, field, pools, shaped=shaped)


def pool_fits(wanted: pb.Lease, field: str, pools: Pools, *, shaped: bool) -> Iterator[Violation]:
    """Yield why the pool can never carry the lease, as far as its nodes are known."""
    pool = wanted.pool or "default"
    if pools.exists(pool) is False:
        yield Violation(f"{field}.pool", "POOL_NOT_FOUND", f"names no pool: {pool!r}")
        return
    view = pools.view(pool)
    if view is None or not shaped:
        return
    asked = {kind: amount for kind, amount in wanted.amounts.items() if amount}
    if view.kinds is not None and not view.kinds.issuperset(asked):
        for kind in sorted(set(asked) - view.kinds):
            known = ", ".join(sorted(view.kinds))
            text_ = f"no node of pool {pool} has {kind}; there is {known}"
            yield Violation(f"{field}.amounts[{kind}]", "UNKNOWN_RESOURCE", text_)
        return
    slots = view.slots_ever(asked, wanted.node_selector, spread=wanted.spread)
    if slots is not None and slots < wanted.node_count:
        text_ = (
            f"is {wanted.node_count}, but pool {pool} could carry at most {slots} such slots "
            "at once, even when empty"
        )
        yield Violation(f"{field}.node_count", "LEASE_NEVER_FITS", text_)


def terms(wanted: pb.Lease, field: str, now: Millis) -> Iterator[Violation]:
    """Yield what is wrong with the terms."""
    kind = wanted.terms.WhichOneof("kind")
    if kind is None:
        text_ = "is one of immediate, best_effort, advance, deadline"
        yield Violation(f"{field}.terms", "REQUIRED", text_)
    elif kind == "advance":
        path = f"{field}.terms.advance.start_time"
        yield from _future(path, wanted.terms.advance, "start_time", now)
    elif kind == "deadline":
        yield from _deadline(f"{field}.terms.deadline", wanted, now)


def _future(
    field: str, message: pb.AdvanceTerms | pb.DeadlineTerms, name: str, now: Millis
) -> Iterator[Violation]:
    if not message.HasField(name):  # type: ignore[arg-type]  # one of the message's own fields
        yield Violation(field, "REQUIRED", "is required")
        return
    value: Timestamp = getattr(message, name)
    at = to_millis(value)
    if value.nanos % 1_000_000 or not 0 <= value.nanos < 1_000_000_000:
        yield Violation(field, "NOT_WHOLE_MILLISECONDS", "is in whole milliseconds")
    elif at < now:
        yield Violation(field, "TIME_IN_PAST", "lies in the past")
    elif at > now + AHEAD_MS_MAX:
        yield Violation(field, "OUT_OF_RANGE", "is at most 10 years ahead")


def _deadline(field: str, wanted: pb.Lease, now: Millis) -> Iterator[Violation]:
    given = wanted.terms.deadline
    found = list(_future(f"{field}.deadline_time", given, "deadline_time", now))
    yield from found
    earliest = now
    if given.HasField("earliest_start_time"):
        # An earliest start that has passed asks for nothing impossible.
        earliest = max(now, to_millis(given.earliest_start_time))
        if given.earliest_start_time.nanos % 1_000_000:
            path = f"{field}.earliest_start_time"
            yield Violation(path, "NOT_WHOLE_MILLISECONDS", "is in whole milliseconds")
    if not found and earliest + span_to_millis(wanted.duration) > to_millis(given.deadline_time):
        text_ = "leaves no room for the duration after the earliest start"
        yield Violation(f"{field}.deadline_time", "DEADLINE_TOO_EARLY", text_)


def hold(field: str, wanted: pb.Lease, now: Millis) -> Iterator[Violation]:
    """Yield what is wrong with a hold: it must be over before the lease could start."""
    yield from length(field, wanted.hold_duration, SECOND_MS, HOLD_MS_MAX)
    terms_ = wanted.terms
    if terms_.HasField("advance"):
        earliest = to_millis(terms_.advance.start_time)
    elif terms_.deadline.HasField("earliest_start_time"):
        earliest = to_millis(terms_.deadline.earliest_start_time)
    else:
        text_ = "goes with advance terms, or deadline terms with an earliest start"
        yield Violation(field, "HOLD_NOT_POSSIBLE", text_)
        return
    if earliest < now + span_to_millis(wanted.hold_duration):
        yield Violation(field, "HOLD_TOO_LONG", "is over before the lease could start")


def node_count(wanted: pb.Lease, field: str, _now: Millis) -> Iterator[Violation]:
    """Yield what is wrong with the number of slots."""
    if not 1 <= wanted.node_count <= NODE_COUNT_MAX:
        text_ = f"is 1 to {NODE_COUNT_MAX}, not {wanted.node_count}"
        yield Violation(f"{field}.node_count", "OUT_OF_RANGE", text_)


def duration(wanted: pb.Lease, field: str, _now: Millis) -> Iterator[Violation]:
    """Yield what is wrong with the duration."""
    if not wanted.HasField("duration"):
        yield Violation(f"{field}.duration", "REQUIRED", "is required")
    else:
        yield from length(f"{field}.duration", wanted.duration, DURATION_MS_MIN, DURATION_MS_MAX)


def priority(wanted: pb.Lease, field: str, _now: Millis) -> Iterator[Violation]:
    """Yield what is wrong with the priority."""
    if not -PRIORITY_MAX <= wanted.priority <= PRIORITY_MAX:
        text_ = f"is -{PRIORITY_MAX} to {PRIORITY_MAX}, not {wanted.priority}"
        yield Violation(f"{field}.priority", "OUT_OF_RANGE", text_)


def own_labels(wanted: pb.Lease, field: str, _now: Millis) -> Iterator[Violation]:
    """Yield what is wrong with the labels."""
    if wanted.labels:
        yield from labels(f"{field}.labels", wanted.labels, LABELS_MAX)


Check = Callable[[pb.Lease, str, Millis], Iterator[Violation]]

FIELD_CHECKS: Final[Mapping[str, Check]] = {
    "duration": duration,
    "terms": terms,
    "node_count": node_count,
    "priority": priority,
    "labels": own_labels,
}
"""The checks of the fields that an update may change."""


def amounts(field: str, wanted: Mapping[str, int]) -> Iterator[Violation]:
    """Yield what is wrong with the amounts per slot."""
    if len(wanted) > KINDS_MAX:
        yield Violation(field, "TOO_MANY", f"names at most {KINDS_MAX} kinds")
    some = False
    for kind in wanted:
        amount = wanted[kind]
        some = some or bool(amount)
        if not is_kind(kind):
            text_ = (
                "names a kind: a lower case letter, then letters, digits and _ . - /, at most 63"
            )
            yield Violation(f"{field}[{kind[:64]}]", "KIND_INVALID", text_)
        if not 0 <= amount <= AMOUNT_MAX:
            yield Violation(f"{field}[{kind[:64]}]", "OUT_OF_RANGE", f"is 0 to {AMOUNT_MAX}")
    if not some:
        yield Violation(field, "REQUIRED", "asks for some resource: one amount is not zero")


def work(field: str, wanted: work_pb2.Work) -> Iterator[Violation]:
    """Yield what is wrong with what to run."""
    items = list(wanted.command)
    command = "".join(items)
    too_long = len(command) * 4 > COMMAND_BYTES_MAX and len(command.encode()) > COMMAND_BYTES_MAX
    if len(items) > COMMAND_ITEMS_MAX or too_long:
        text_ = f"has at most {COMMAND_ITEMS_MAX} items and {COMMAND_BYTES_MAX} bytes in all"
        yield Violation(f"{field}.command", "TOO_LARGE", text_)
    if items and not items[0]:
        yield Violation(f"{field}.command[0]", "REQUIRED", "names a program")
    if "\0" in command:
        yield Violation(f"{field}.command", "NUL_CHARACTER", "contains no NUL character")
    if wanted.environment:
        yield from _environment(f"{field}.environment", wanted.environment)
    if wanted.secrets:
        yield from _secrets(f"{field}.secrets", wanted)
    if wanted.image:
        yield from text(f"{field}.image", wanted.image, IMAGE_LENGTH_MAX)


def _environment(field: str, wanted: Mapping[str, str]) -> Iterator[Violation]:
    if len(wanted) > ENVIRONMENT_MAX:
        yield Violation(field, "TOO_MANY", f"has at most {ENVIRONMENT_MAX} items")
    for name, value in wanted.items():
        yield from _variable(f"{field}[{name[:64]}]", name, value)


def _secrets(field: str, wanted: work_pb2.Work) -> Iterator[Violation]:
    yield from _environment(field, wanted.secrets)
    if not wanted.command:
        yield Violation(field, "NOT_APPLICABLE", "is for work: there is no command")
    if sum(len(value.encode()) for value in wanted.secrets.values()) > SECRETS_BYTES_MAX:
        yield Violation(field, "TOO_LARGE", f"has at most {SECRETS_BYTES_MAX} bytes in all")
    for name in sorted(wanted.secrets.keys() & wanted.environment.keys()):
        yield Violation(f"{field}[{name[:64]}]", "NAME_TAKEN", "is no name of `environment`")


def _variable(field: str, name: str, value: str) -> Iterator[Violation]:
    if not name or "=" in name or "\0" in name or "\0" in value:
        text_ = "has a name without '=', and no NUL character"
        yield Violation(field, "ENVIRONMENT_INVALID", text_)
    elif len(name.encode()) > ENVIRONMENT_NAME_BYTES_MAX:
        yield Violation(field, "TOO_LARGE", f"has a name of at most {ENVIRONMENT_NAME_BYTES_MAX}")
    elif len(value.encode()) > ENVIRONMENT_VALUE_BYTES_MAX:
        text_ = f"has a value of at most {ENVIRONMENT_VALUE_BYTES_MAX} bytes"
        yield Violation(field, "TOO_LARGE", text_)


def dependencies(field: str, wanted: pb.Lease) -> Iterator[Violation]:
    """Yield what is wrong with the names and number of dependencies."""
    if len(wanted.dependencies) > DEPENDENCIES_MAX:
        yield Violation(field, "TOO_MANY", f"has at most {DEPENDENCIES_MAX} items")
    for index, each in enumerate(wanted.dependencies):
        yield from lease_name(f"{field}[{index}].lease", each.lease)
        if each.condition not in _CONDITIONS:
            path = f"{field}[{index}].condition"
            yield Violation(path, "VALUE_UNKNOWN", "is SUCCEEDED or ENDED")
