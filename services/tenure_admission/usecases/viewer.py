"""Who asks: users see and change their own leases, operators and services all."""

from __future__ import annotations

from dataclasses import dataclass

from tenure_core.errors import NotFound


@dataclass(frozen=True, slots=True)
class Viewer:
    """A caller by name, and whether it sees everybody's leases."""

    name: str
    sees_all: bool

    @property
    def only(self) -> str | None:
        """Return the one owner whose leases the caller sees, None for everybody's."""
        return None if self.sees_all else self.name

    def sees(self, owner: str) -> bool:
        """Say whether the caller sees leases of this owner."""
        return self.sees_all or owner == self.name


def lease_not_found(lease_id: str) -> NotFound:
    """Return the error of a lease that does not exist, or that the caller may not see."""
    return NotFound("LEASE_NOT_FOUND", f"leases/{lease_id} does not exist.", lease=lease_id)
