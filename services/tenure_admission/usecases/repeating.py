"""Answer repeats of requests that time has made invalid: a start has passed, a pool has closed."""

from __future__ import annotations

from tenure_admission.ports import RequestLog
from tenure_admission.records import RequestKey
from tenure_core.errors import DomainError


class Repeating:
    """First answers, for requests that would be refused today."""

    def __init__(self, log: RequestLog) -> None:
        self._log = log

    async def first_answer(self, request: RequestKey | None, refusal: DomainError) -> bytes:
        """Return the first answer to a repeat; raise the refusal of what was never answered.

        Raises Invalid REQUEST_ID_REUSED.
        """
        answer = None if request is None else await self._log.answered(request)
        if answer is None:
            raise refusal
        return answer
