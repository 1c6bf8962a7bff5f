"""API keys and roles ⇄ their wire forms."""

from __future__ import annotations

from typing import Final

from tenure.admission.v1 import identity_pb2 as pb
from tenure_admission.usecases.keyholding import WantedKey, WantedRotation
from tenure_core.identity.api_keys import ApiKey
from tenure_core.identity.grants import Grant, Scope
from tenure_core.timebase import DAY_MS, Millis
from tenure_runtime.rpc.identity import Identity, Role
from tenure_runtime.rpc.wire import span_to_millis, to_millis, to_timestamp

OVERLAP_MS_DEFAULT: Final[Millis] = DAY_MS
ROLE_TO_WIRE: Final = {
    Role.USER: pb.ROLE_MEMBER,
    Role.PROJECT_ADMIN: pb.ROLE_PROJECT_ADMIN,
    Role.DOMAIN_ADMIN: pb.ROLE_DOMAIN_ADMIN,
    Role.OPERATOR: pb.ROLE_OPERATOR,
    Role.SERVICE: pb.ROLE_SERVICE,
    Role.AGENT: pb.ROLE_AGENT,
}
_ROLE_OF_WIRE: Final = {number: role for role, number in ROLE_TO_WIRE.items()}


def grant_of(identity: Identity) -> Grant:
    """Return what the caller of the present call may."""
    roles = frozenset(role.value for role in identity.roles)
    return Grant(identity.name, roles, identity.scope, identity.administers)


def wanted_of(key: pb.ApiKey) -> WantedKey:
    """Return a valid key as it is asked for."""
    scope = Scope(key.scope.read_only, frozenset(key.scope.pools), frozenset(key.scope.projects))
    roles = frozenset(_ROLE_OF_WIRE[role].value for role in key.roles)
    expires = to_millis(key.expire_time) if key.HasField("expire_time") else None
    grant = Grant(key.caller, roles, scope, frozenset(key.administers))
    return WantedKey(grant, key.description, expires)


def rotation_of(request: pb.RotateApiKeyRequest) -> WantedRotation:
    """Return a valid rotation."""
    overlap_ms = OVERLAP_MS_DEFAULT
    if request.HasField("overlap"):
        overlap_ms = span_to_millis(request.overlap)
    expires = to_millis(request.expire_time) if request.HasField("expire_time") else None
    return WantedRotation(overlap_ms, expires)


def roles_to_wire(roles: frozenset[Role]) -> list[pb.Role.ValueType]:
    """Return roles in the contract's order."""
    return sorted(ROLE_TO_WIRE[role] for role in roles)


def key_to_wire(key: ApiKey) -> pb.ApiKey:
    """Return a key."""
    grant = key.grant
    return pb.ApiKey(
        name=f"apiKeys/{key.id}",
        caller=grant.caller,
        roles=roles_to_wire(frozenset(Role(role) for role in grant.roles)),
        scope=pb.KeyScope(
            read_only=grant.scope.read_only,
            pools=sorted(grant.scope.pools),
            projects=sorted(grant.scope.projects),
        ),
        administers=sorted(grant.administers),
        description=key.description,
        expire_time=None if key.expires is None else to_timestamp(key.expires),
        create_time=to_timestamp(key.created),
        creator=key.creator,
        revoke_time=None if key.revoked is None else to_timestamp(key.revoked),
        revoker=key.revoker,
        replaced_by=f"apiKeys/{key.replaced_by}" if key.replaced_by else "",
    )
