"""Where the call being served comes from: who makes which call, from which peer.

Set by the server's edge, read by stores that write the audit trail.
"""

from __future__ import annotations

from contextvars import ContextVar

from tenure_core.audit.entry import ITSELF, Origin

_current: ContextVar[Origin] = ContextVar("tenure_origin", default=ITSELF)


def enter(origin: Origin) -> None:
    """Set the origin of the present task; the server's edge does this."""
    _current.set(origin)


def current_origin() -> Origin:
    """Return where the call being served comes from; an empty one outside of calls."""
    return _current.get()
