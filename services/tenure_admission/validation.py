"""Requests → violations: every limit that the contract states, all of them at once.

Decides what is malformed, with the path as the caller wrote it and a stable reason. Whether a lease
exists, and what its state allows, is left to the use cases.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from google.protobuf.field_mask_pb2 import FieldMask

from tenure.admission.v1 import admission_pb2 as calls
from tenure.admission.v1 import lease_pb2 as pb
from tenure_admission import lease_validation as leases
from tenure_admission import part_validation as parts
from tenure_admission.lease_validation import MESSAGE_LENGTH_MAX, Pools
from tenure_admission.part_validation import lease_name
from tenure_core.errors import Invalid, Violation
from tenure_core.timebase import MINUTE_MS, Millis

SEALS_MAX: Final = 32
BATCH_MAX: Final = 1_000
# Answers repeat what was asked for, and a message has 4 MiB.
BATCH_BYTES_MAX: Final = 3 * 1024 * 1024
LEASE_BYTES_MAX: Final = 1024 * 1024
PREDICTIONS_MAX: Final = 10_000
WAIT_MS_MAX: Final[Millis] = 10 * MINUTE_MS
TOKEN_LENGTH_MAX: Final = 4_096
TRANSITION_ID_LENGTH_MAX: Final = 255

UPDATABLE: Final = ("duration", "terms", "node_count", "priority", "labels")

_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_LEASE_ID: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_SCOPE: Final = re.compile(r"pool/.{1,63}")


def refuse(violations: list[Violation]) -> None:
    """Raise Invalid INVALID_REQUEST with all violations, if there are any."""
    if violations:
        raise Invalid(violations)


def create(request: calls.CreateLeaseRequest, now: Millis, pools: Pools) -> list[Violation]:
    """Return what is wrong with a request for a lease, its own ids included."""
    if request.lease.ByteSize() > LEASE_BYTES_MAX:
        return [Violation("lease", "TOO_LARGE", f"has at most {LEASE_BYTES_MAX} bytes in all")]
    found = list(leases.lease(request.lease, "lease", now, pools))
    if request.lease_id and not _LEASE_ID.fullmatch(request.lease_id):
        text = "is 1 to 63 lower case letters, digits and hyphens, no hyphen first or last"
        found.append(Violation("lease_id", "LEASE_ID_INVALID", text))
    own = f"leases/{request.lease_id}"
    if request.lease_id and any(each.lease == own for each in request.lease.dependencies):
        found.append(cycle("lease.dependencies", [request.lease_id]))
    if request.request_id:
        found += request_id(request.request_id)
    return found


def cycle(field: str, members: list[str]) -> Violation:
    """Return the violation of leases that wait for one another."""
    round_trip = " → ".join([*members, members[0]])
    return Violation(field, "DEPENDENCY_CYCLE", f"would wait for ever: {round_trip}")


def request_id(text: str) -> Iterator[Violation]:
    """Yield what is wrong with a request id; none at all is fine."""
    if text and not _UUID.fullmatch(text):
        yield Violation("request_id", "REQUEST_ID_INVALID", "is a UUID, for example a random one")


def batch(request: calls.BatchCreateLeasesRequest) -> list[Violation]:
    """Return what is wrong with a batch as a whole; its items have verdicts of their own."""
    found = list(request_id(request.request_id))
    if not 1 <= len(request.requests) <= BATCH_MAX:
        text = f"has 1 to {BATCH_MAX} items, not {len(request.requests)}"
        found.append(Violation("requests", "OUT_OF_RANGE", text))
    if request.ByteSize() > BATCH_BYTES_MAX:
        text = f"has at most {BATCH_BYTES_MAX} bytes in all; send fewer items"
        found.append(Violation("requests", "TOO_LARGE", text))
    return found


def seal(request: calls.SealSecretsRequest) -> list[Violation]:
    """Return what is wrong with a request for sealed secrets."""
    found = list(lease_name("lease", request.lease))
    if not 1 <= len(request.sealing_keys) <= SEALS_MAX:
        found.append(Violation("sealing_keys", "OUT_OF_RANGE", f"are 1 to {SEALS_MAX}"))
    return found


def name(text: str) -> list[Violation]:
    """Return what is wrong with the name of a lease."""
    return list(lease_name("name", text))


def listing(request: calls.ListLeasesRequest) -> list[Violation]:
    """Return what is wrong with the filters of a list."""
    found = [
        *parts.label("owner", request.owner),
        *parts.label("project", request.project),
        *parts.label("pool", request.pool),
        *parts.labels("labels", request.labels, leases.LABELS_MAX),
        *states("states", request.states),
    ]
    if request.page_size < 0:
        found.append(Violation("page_size", "OUT_OF_RANGE", "must not be negative"))
    if request.HasField("create_interval"):
        found += parts.interval("create_interval", request.create_interval)
    return found


def states(field: str, wanted: Iterable[pb.Lease.State.ValueType]) -> Iterator[Violation]:
    """Yield what is wrong with a list of states."""
    for index, state in enumerate(wanted):
        if state not in leases.STATES:
            yield Violation(f"{field}[{index}]", "STATE_UNKNOWN", "is no state of a lease")


def watch(request: calls.WatchLeasesRequest) -> list[Violation]:
    """Return what is wrong with the filters of a watch."""
    found = [*parts.label("owner", request.owner), *parts.label("pool", request.pool)]
    if request.name:
        found += lease_name("name", request.name)
    if len(request.resume_token) > TOKEN_LENGTH_MAX:
        text = "is not a token of this feed"
        found.append(Violation("resume_token", "RESUME_TOKEN_INVALID", text))
    return found


def cancel(request: calls.CancelLeaseRequest) -> list[Violation]:
    """Return what is wrong with a cancellation."""
    return [
        *lease_name("name", request.name),
        *request_id(request.request_id),
        *parts.text("message", request.message, MESSAGE_LENGTH_MAX),
    ]


def confirm(request: calls.ConfirmLeasesRequest) -> list[Violation]:
    """Return what is wrong with a confirmation."""
    found = list(request_id(request.request_id))
    if not 1 <= len(request.names) <= BATCH_MAX:
        text = f"has 1 to {BATCH_MAX} items, not {len(request.names)}"
        found.append(Violation("names", "OUT_OF_RANGE", text))
    for index, each in enumerate(request.names):
        found += lease_name(f"names[{index}]", each)
    if len(set(request.names)) < len(request.names):
        found.append(Violation("names", "NAMED_TWICE", "names each lease once"))
    return found


def update_paths(request: calls.UpdateLeaseRequest) -> tuple[str, ...]:
    """Return the fields that an update changes: its mask, or those populated."""
    mask: FieldMask = request.update_mask
    if list(mask.paths) == ["*"]:
        return UPDATABLE
    if mask.paths:
        return tuple(mask.paths)
    populated = {field.name for field, _ in request.lease.ListFields()}
    return tuple(path for path in UPDATABLE if path in populated)


def update(request: calls.UpdateLeaseRequest, now: Millis) -> list[Violation]:
    """Return what is wrong with an update."""
    found = [*lease_name("lease.name", request.lease.name), *request_id(request.request_id)]
    paths = update_paths(request)
    for index, path in enumerate(paths):
        if path not in UPDATABLE:
            text = f"names one of {', '.join(UPDATABLE)}, not {path!r}"
            found.append(Violation(f"update_mask.paths[{index}]", "MASK_PATH_INVALID", text))
        else:
            found += leases.FIELD_CHECKS[path](request.lease, "lease", now)
    if not paths:
        text = f"is empty and none of {', '.join(UPDATABLE)} is given"
        found.append(Violation("update_mask", "REQUIRED", text))
    return found


def wait(request: calls.WaitLeaseRequest) -> list[Violation]:
    """Return what is wrong with a wait."""
    found = [*lease_name("name", request.name), *states("states", request.states)]
    if request.HasField("timeout"):
        found += parts.length("timeout", request.timeout, 0, WAIT_MS_MAX)
    return found


def record(request: calls.RecordTransitionsRequest) -> list[Violation]:
    """Return what is wrong with a leader's record as a whole."""
    found = list(scope_and_epoch(request.scope, request.epoch))
    if len(request.transitions) > BATCH_MAX:
        found.append(Violation("transitions", "OUT_OF_RANGE", f"has at most {BATCH_MAX} items"))
    if len(request.predictions) > PREDICTIONS_MAX:
        text = f"has at most {PREDICTIONS_MAX} items"
        found.append(Violation("predictions", "OUT_OF_RANGE", text))
    for index, each in enumerate(request.transitions):
        found += _transition(f"transitions[{index}]", each)
    for index, prediction in enumerate(request.predictions):
        found += lease_name(f"predictions[{index}].lease", prediction.lease)
    return found


def _transition(field: str, wanted: calls.TransitionRequest) -> Iterator[Violation]:
    yield from lease_name(f"{field}.lease", wanted.lease)
    if not 1 <= len(wanted.transition_id) <= TRANSITION_ID_LENGTH_MAX:
        text = f"has 1 to {TRANSITION_ID_LENGTH_MAX} characters"
        yield Violation(f"{field}.transition_id", "LENGTH_OUT_OF_RANGE", text)
    if wanted.state not in leases.STATES:
        yield Violation(f"{field}.state", "STATE_UNKNOWN", "is no state of a lease")
    yield from parts.text(f"{field}.reason", wanted.reason, 63)
    if wanted.HasField("charge_interval"):
        yield from parts.interval(f"{field}.charge_interval", wanted.charge_interval)
    if wanted.HasField("remaining_duration"):
        yield from parts.length(
            f"{field}.remaining_duration", wanted.remaining_duration, 0, leases.DURATION_MS_MAX
        )
    for rank, placement in enumerate(wanted.placements):
        path = f"{field}.placements[{rank}]"
        if not placement.node.startswith("nodes/"):
            yield Violation(f"{path}.node", "NAME_INVALID", "is nodes/{id}")
        yield from parts.interval(f"{path}.interval", placement.interval)


def scope_and_epoch(scope: str, epoch: int) -> Iterator[Violation]:
    """Yield what is wrong with a leader's scope and epoch."""
    if not _SCOPE.fullmatch(scope):
        yield Violation("scope", "SCOPE_INVALID", "is pool/{pool}")
    if epoch < 1:
        yield Violation("epoch", "OUT_OF_RANGE", "is at least 1")
