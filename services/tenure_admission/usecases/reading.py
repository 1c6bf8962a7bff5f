"""Get, list and watch leases, each caller those that it may see."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace

from tenure_admission.ports import (
    FeedBookmark,
    LeaseEvent,
    LeaseFeed,
    LeasePage,
    LeaseReader,
    Listing,
    Reach,
)
from tenure_admission.records import StoredLease
from tenure_admission.usecases.viewer import lease_not_found
from tenure_core.identity.viewer import Viewer

Heading = Callable[[bytes], tuple[str, str, str]]
"""Returns owner, project and pool of an encoded lease."""


@dataclass(frozen=True, slots=True)
class WatchFilter:
    """Which changes to stream; "" lets everything pass."""

    owner: str = ""
    pool: str = ""
    lease_id: str = ""


class Reading:
    """Reads for callers."""

    def __init__(self, reader: LeaseReader, feed: LeaseFeed, heading: Heading) -> None:
        self._reader = reader
        self._feed = feed
        self._heading = heading

    async def get(self, lease_id: str, viewer: Viewer) -> StoredLease:
        """Return one lease. Raises LEASE_NOT_FOUND, also for what the caller may not see."""
        for stored in await self._reader.get([lease_id]):
            if viewer.sees(stored.owner, stored.project, stored.pool):
                return stored
        raise lease_not_found(lease_id)

    async def page(self, listing: Listing, owner: str, viewer: Viewer) -> LeasePage:
        """Return a page of the leases of `owner` ("" for all) that the caller may see."""
        owners = frozenset({owner}) if owner else None
        reach = None
        if viewer.administers and not viewer.sees_all:
            reach = Reach(viewer.name, viewer.administers)
        elif not viewer.sees_all:
            own = frozenset({viewer.name})
            owners = own if owners is None else own & owners
        seen = replace(listing, owners=owners, administers=reach, scope=viewer.scope)
        return await self._reader.page(seen)

    async def watch(
        self, token: str, wanted: WatchFilter, viewer: Viewer
    ) -> AsyncGenerator[LeaseEvent | FeedBookmark, None]:
        """Yield changes after `token` ("" for the present, told by a bookmark first)."""
        if not token:
            position = await self._feed.now()
            yield FeedBookmark(position)
            token = position.token()
        async with aclosing(self._feed.watch(token, self._wants(wanted, viewer))) as events:
            async for event in events:
                yield event

    def _wants(self, wanted: WatchFilter, viewer: Viewer) -> Callable[[str, bytes], bool]:
        heading = self._heading

        def wants(lease_id: str, body: bytes) -> bool:
            if wanted.lease_id and lease_id != wanted.lease_id:
                return False
            owner, project, pool = heading(body)
            asked = wanted.owner in ("", owner) and wanted.pool in ("", pool)
            return asked and viewer.sees(owner, project, pool)

        return wants
