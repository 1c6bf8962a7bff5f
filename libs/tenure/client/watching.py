"""Changes of leases, without gap or repeat, over any number of connections.

Decides when a watch goes on by itself: after a cut, a server that stops, a reader that was too slow
for one stream. It goes on from its last token. When that is too old, changes were missed; then the
watch raises WatchExpired or, if told to, lists all again. Other errors end it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tenure.admission.v1 import admission_pb2 as apb
from tenure.client.errors import DomainError, Exhausted, RemoteFailure, Unavailable, WatchExpired
from tenure.client.lease_info import LeaseInfo, LeaseTable
from tenure_runtime.rpc.client import Client, RetryPolicy
from tenure_runtime.rpc.shedding import OVERLOADED
from tenure_runtime.rpc.status import RESUME_TOKEN_EXPIRED

if TYPE_CHECKING:
    from tenure.admission.v1.admission_pb2_grpc import AdmissionServiceAsyncStub

_CUT: Final = {"UNKNOWN", "INTERNAL"}
"""Codes of a connection that ended in the middle, where the server said nothing."""


@dataclass(frozen=True, slots=True)
class Change:
    """A lease after a change. `token` resumes right after it.

    `listed` is set for leases that were listed again, because changes before were missed. Only the
    last of them has a token: before it, there is nothing to resume from.
    """

    lease: LeaseInfo
    token: str
    listed: bool = False


ListAgain = Callable[[], Coroutine[Any, Any, LeaseTable]]
"""Returns the leases as they are, with the token from which to watch on."""


async def watch(
    client: Client,
    stub: AdmissionServiceAsyncStub,
    request: apb.WatchLeasesRequest,
    *,
    patience_s: float | None,
    list_again: ListAgain | None,
) -> AsyncGenerator[Change, None]:
    """Yield changes after the request's token until closed.

    Raises the last error once nothing was heard for `patience_s`, None for never; WatchExpired
    without `list_again`.
    """
    token = request.resume_token
    retry = RetryPolicy(attempts=0)
    chance = random.Random()  # noqa: S311 - spreads reconnects, protects nothing
    loop = asyncio.get_running_loop()
    heard, failures = loop.time(), 0
    while True:
        error: DomainError | None = None
        request.resume_token = token
        try:
            async with client.stream(stub.WatchLeases, request) as events:
                async for event in events:
                    heard, failures, token = loop.time(), 0, event.resume_token
                    if event.HasField("lease"):
                        yield Change(LeaseInfo.of(event.lease), token)
        except DomainError as raised:
            error = raised
        if error is not None and error.reason == RESUME_TOKEN_EXPIRED:
            if list_again is None:
                raise WatchExpired(error.message) from error
            found = await list_again()
            heard, token = loop.time(), found.token
            for number, lease in enumerate(found, 1):
                yield Change(lease, token if number == len(found) else "", listed=True)
            continue
        if error is not None and not _passes(error):
            raise error
        if patience_s is not None and loop.time() - heard > patience_s:
            raise error or Unavailable("STREAM_ENDED", "The server ends every watch at once.")
        failures += 1
        await asyncio.sleep(retry.wait_ms(failures, chance, None) / 1_000)


def _passes(error: DomainError) -> bool:
    """Say whether another stream may go on where this one ended."""
    if isinstance(error, RemoteFailure):
        return error.reason in _CUT
    return isinstance(error, Unavailable) or (
        isinstance(error, Exhausted) and error.reason in {"WATCHER_TOO_SLOW", OVERLOADED}
    )
