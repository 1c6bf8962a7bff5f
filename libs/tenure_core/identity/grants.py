"""What a credential lets its bearer be, and to which leases it is limited.

Roles are plain words here; what each may call is a table of the services.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

MEMBER: Final = "user"
PROJECT_ADMIN: Final = "project-admin"
DOMAIN_ADMIN: Final = "domain-admin"
OPERATOR: Final = "operator"
GRANTABLE: Final = frozenset({MEMBER, PROJECT_ADMIN, DOMAIN_ADMIN, OPERATOR})
"""What a key made by a call may be; services and agents have theirs in keyring files."""
ADMINS: Final = frozenset({PROJECT_ADMIN, DOMAIN_ADMIN})
IMPLIED: Final = {PROJECT_ADMIN: {MEMBER}, DOMAIN_ADMIN: {PROJECT_ADMIN, MEMBER}}


@dataclass(frozen=True, slots=True)
class Scope:
    """To what less than its roles allow a credential is limited; empty sets limit nothing."""

    read_only: bool = False
    pools: frozenset[str] = frozenset()
    projects: frozenset[str] = frozenset()

    @property
    def limits_leases(self) -> bool:
        """Say whether some leases lie outside."""
        return bool(self.pools or self.projects)

    def covers(self, project: str, pool: str) -> bool:
        """Say whether leases of the project in the pool lie inside."""
        return (not self.projects or project in self.projects) and (
            not self.pools or pool in self.pools
        )


WHOLE: Final = Scope()
"""The scope that limits nothing."""


@dataclass(frozen=True, slots=True)
class Grant:
    """For whom a credential speaks, in what roles, limited to what."""

    caller: str
    roles: frozenset[str]
    scope: Scope = WHOLE
    administers: frozenset[str] = frozenset()

    @property
    def effective_roles(self) -> frozenset[str]:
        """Return the roles with those that they imply."""
        return with_implied(self.roles)


def with_implied(roles: Collection[str]) -> frozenset[str]:
    """Return roles with those that they imply."""
    return frozenset(roles).union(*(IMPLIED.get(role, ()) for role in roles))


def may_hand_out(maker: Grant, wanted: Grant) -> bool:
    """Say whether `maker` may make or withdraw a credential that grants `wanted` to anybody.

    Operators may all. A domain admin may what stays inside the projects that it administers: a
    member's key that is not limited to them would open leases of its caller elsewhere.
    """
    if OPERATOR in maker.roles:
        return True
    return (
        DOMAIN_ADMIN in maker.roles
        and wanted.roles <= {MEMBER, PROJECT_ADMIN}
        and bool(wanted.scope.projects)
        and wanted.scope.projects <= maker.administers
        and wanted.administers <= maker.administers
        and _narrower(wanted.scope, maker.scope)
    )


def is_own(holder: Grant, wanted: Grant) -> bool:
    """Say whether `wanted` is the holder's own and opens nothing that the holder's does not."""
    return (
        holder.caller == wanted.caller
        and wanted.roles <= holder.effective_roles
        and wanted.administers <= holder.administers
        and _narrower(wanted.scope, holder.scope)
    )


def _narrower(inner: Scope, outer: Scope) -> bool:
    return (
        (inner.read_only or not outer.read_only)
        and _subset(inner.pools, outer.pools)
        and _subset(inner.projects, outer.projects)
    )


def _subset(inner: frozenset[str], outer: frozenset[str]) -> bool:
    return not outer or (bool(inner) and inner <= outer)
