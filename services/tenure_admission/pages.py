"""Which of the leases found fit one page: by number, and by the size of a message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tenure_admission.ports import LeasePage
from tenure_admission.records import StoredLease
from tenure_core.timebase import Millis

PAGE_BYTES_MAX: Final = 3 * 1024 * 1024
"""Leases of one answer: a message has 4 MiB, and a lease grows by its forecast on the way."""


def page_of(
    found: Sequence[tuple[Millis, StoredLease]], limit: int, resume_token: str
) -> LeasePage:
    """Return the page of the leases found (with their creation), of which one is more than `limit`.

    A page has fewer than `limit` leases when they are large, but one at least if any was found.
    """
    size, count = 0, 0
    for _, stored in found[:limit]:
        size += len(stored.body)
        if count and size > PAGE_BYTES_MAX:
            break
        count += 1
    shown = found[:count]
    more = len(found) > count
    return LeasePage(
        tuple(stored for _, stored in shown),
        (shown[-1][0], shown[-1][1].id) if more else None,
        resume_token,
    )
