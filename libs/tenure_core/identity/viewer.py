"""Who asks: users see and change their own leases, admins those of their projects, others all.

Each of them sees no more than what lies inside the scope of the credential shown.
"""

from __future__ import annotations

from dataclasses import dataclass

from tenure_core.errors import Forbidden
from tenure_core.identity.grants import WHOLE, Scope


@dataclass(frozen=True, slots=True)
class Viewer:
    """A caller by name, and whose leases it sees: everybody's, or also those of some projects."""

    name: str
    sees_all: bool
    administers: frozenset[str] = frozenset()
    scope: Scope = WHOLE

    def sees(self, owner: str, project: str, pool: str) -> bool:
        """Say whether the caller sees, and may act on, a lease of this owner, project and pool."""
        own = self.sees_all or owner == self.name or project in self.administers
        return own and self.scope.covers(project, pool)

    def check_creates(self, project: str, pool: str) -> None:
        """Raise Forbidden SCOPE_FORBIDDEN unless the caller may create leases there."""
        if not self.scope.covers(project, pool):
            text = f"The key is limited; project {project} in pool {pool} lies outside."
            raise Forbidden("SCOPE_FORBIDDEN", text, project=project, pool=pool)
