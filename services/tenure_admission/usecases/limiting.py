"""Set and show quotas, and say where owners and projects stand under them."""

from __future__ import annotations

from collections.abc import Sequence

from tenure_admission.charges import OWNER, PROJECT, Drift
from tenure_admission.ports import QuotaBook
from tenure_admission.quotas import Quota, Standing, Subject, WantedQuota, standing_of
from tenure_admission.records import RequestKey
from tenure_core.errors import Forbidden
from tenure_core.identity.viewer import Viewer
from tenure_core.timebase import Clock


class Limiting:
    """Quotas for operators, and for everyone what concerns them."""

    def __init__(self, book: QuotaBook, clock: Clock) -> None:
        self._book = book
        self._clock = clock

    async def put(self, wanted: WantedQuota, request: RequestKey | None) -> tuple[Quota, Standing]:
        """Set a quota; return it and where its subject stands now.

        Raises ETAG_MISMATCH, REQUEST_ID_REUSED.
        """
        quota = await self._book.put(wanted, self._clock.now_ms(), request)
        return quota, await self._standing(quota.subject)

    async def delete(self, quota_id: str, etag: str, request: RequestKey | None) -> Quota:
        """Forget a quota. Raises QUOTA_NOT_FOUND, ETAG_MISMATCH, REQUEST_ID_REUSED."""
        return await self._book.delete(quota_id, etag, request)

    async def page(
        self, subject: Subject | None, after: str, limit: int, viewer: Viewer
    ) -> list[Quota]:
        """Return quotas that the viewer may see; users see their own as owners."""
        if not viewer.sees_all:
            if subject not in (None, (OWNER, viewer.name)):
                return []
            subject = (OWNER, viewer.name)
        return await self._book.page(subject, after, limit)

    async def usage(self, subject: Subject | None, viewer: Viewer) -> Standing:
        """Return where a subject stands, the caller itself when none is named.

        Raises Forbidden SUBJECT_FORBIDDEN when a user asks about anything but themselves.
        """
        own = (OWNER, viewer.name)
        theirs = {None, own, *((PROJECT, name) for name in viewer.administers)}
        if not viewer.sees_all and subject not in theirs:
            text = "Users see what they use themselves, and what projects use that they administer."
            raise Forbidden("SUBJECT_FORBIDDEN", text)
        return await self._standing(subject or own)

    async def _standing(self, subject: Subject) -> Standing:
        now = self._clock.now_ms()
        return standing_of(await self._book.holdings(subject, now), now)

    async def verify(self) -> Sequence[Drift]:
        """Return the accounts of the ledger that are not the sum over the charged leases."""
        return await self._book.drifts()

    def now(self) -> int:
        """Return the present instant."""
        return self._clock.now_ms()
