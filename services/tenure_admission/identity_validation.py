"""Requests about API keys → violations: the limits stated beside their fields in the contract."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from tenure.admission.v1 import identity_pb2 as pb
from tenure_admission import part_validation as parts
from tenure_admission import validation
from tenure_core.errors import Violation
from tenure_core.timebase import DAY_MS, MINUTE_MS, Millis
from tenure_runtime.rpc.wire import to_millis

DESCRIPTION_LENGTH_MAX: Final = 200
NAMES_MAX: Final = 32
OVERLAP_MS_MAX: Final = 90 * DAY_MS
AHEAD_MS_MIN: Final = MINUTE_MS
_CALLER: Final = re.compile(r"[a-z0-9][a-z0-9.-]{0,62}")
_NAME: Final = re.compile(r"apiKeys/[a-z0-9]{1,32}")
_GRANTABLE: Final = frozenset(
    {pb.ROLE_MEMBER, pb.ROLE_PROJECT_ADMIN, pb.ROLE_DOMAIN_ADMIN, pb.ROLE_OPERATOR}
)
_ADMINS: Final = frozenset({pb.ROLE_PROJECT_ADMIN, pb.ROLE_DOMAIN_ADMIN})


def create(request: pb.CreateApiKeyRequest, now: Millis) -> list[Violation]:
    """Return what is wrong with a key to make."""
    key = request.api_key
    found = [*validation.request_id(request.request_id)] if request.request_id else []
    if not _CALLER.fullmatch(key.caller):
        text = "is 1 to 63 lower case letters, digits, hyphens and dots"
        found.append(Violation("api_key.caller", "NAME_INVALID", text))
    found += _roles(key)
    found += _names("api_key.scope.pools", key.scope.pools)
    found += _names("api_key.scope.projects", key.scope.projects)
    found += parts.text("api_key.description", key.description, DESCRIPTION_LENGTH_MAX)
    if key.HasField("expire_time"):
        found += _expiry("api_key.expire_time", to_millis(key.expire_time), now)
    return found


def _roles(key: pb.ApiKey) -> Iterator[Violation]:
    roles = set(key.roles)
    if not roles:
        yield Violation("api_key.roles", "REQUIRED", "names a role")
    if not roles <= _GRANTABLE or len(key.roles) != len(roles):
        text = "are distinct, and of members, project admins, domain admins and operators only"
        yield Violation("api_key.roles", "VALUE_UNKNOWN", text)
    if roles & _ADMINS and not key.administers:
        yield Violation("api_key.administers", "REQUIRED", "names the projects of an admin")
    if key.administers and not roles & _ADMINS:
        text = "is for project and domain admins only"
        yield Violation("api_key.administers", "SCOPE_INVALID", text)
    yield from _names("api_key.administers", key.administers)
    if (key.scope.pools or key.scope.projects) and pb.ROLE_OPERATOR in roles:
        text = "limits members and admins of projects only: an operator's calls know no project"
        yield Violation("api_key.scope", "SCOPE_INVALID", text)


def _names(field: str, names: Iterable[str]) -> Iterator[Violation]:
    given = list(names)
    if len(given) > NAMES_MAX:
        yield Violation(field, "TOO_MANY", f"names at most {NAMES_MAX}")
    for index, name in enumerate(given[:NAMES_MAX]):
        path = f"{field}[{index}]"
        if not name:
            yield Violation(path, "REQUIRED", "is a name")
        yield from parts.label(path, name)


def _expiry(field: str, at: Millis, now: Millis) -> Iterator[Violation]:
    if at < now + AHEAD_MS_MIN:
        yield Violation(field, "TIME_IN_PAST", "is a minute ahead at least")


def name(given: str) -> Iterator[Violation]:
    """Yield what is wrong with the name of a key."""
    if not _NAME.fullmatch(given):
        yield Violation("name", "NAME_INVALID", "is apiKeys/{id}")


def rotate(request: pb.RotateApiKeyRequest, now: Millis) -> list[Violation]:
    """Return what is wrong with a rotation."""
    found = [*name(request.name)]
    if request.request_id:
        found += validation.request_id(request.request_id)
    if request.HasField("overlap"):
        found += parts.length("overlap", request.overlap, 0, OVERLAP_MS_MAX)
    if request.HasField("expire_time"):
        found += _expiry("expire_time", to_millis(request.expire_time), now)
    return found


def revoke(request: pb.RevokeApiKeyRequest) -> list[Violation]:
    """Return what is wrong with a withdrawal."""
    found = [*name(request.name)]
    if request.request_id:
        found += validation.request_id(request.request_id)
    return found


def listing(request: pb.ListApiKeysRequest) -> list[Violation]:
    """Return what is wrong with a question for keys."""
    return list(parts.label("caller", request.caller))
