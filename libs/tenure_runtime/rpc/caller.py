"""Who makes the call being served."""

from __future__ import annotations

from tenure_core.identity.viewer import Viewer
from tenure_runtime.rpc.identity import Role, current_identity


def caller() -> Viewer:
    """Return who made the call being served."""
    identity = current_identity()
    return Viewer(
        identity.name,
        identity.has(Role.OPERATOR) or identity.has(Role.SERVICE),
        identity.administers,
        identity.scope,
    )
