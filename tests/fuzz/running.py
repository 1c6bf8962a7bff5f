"""Fuzzes every call of every service of a real suite, and says what came of it."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import grpc
from google.protobuf.descriptor import MethodDescriptor
from tests.fuzz.examples import EXAMPLES
from tests.fuzz.messages import Maker
from tests.support.every_call import contract_of
from tests.support.suite import RunningSuite
from tests.tidy.permissions import CONTRACTS, SERVED_BY, table_of

from tenure_runtime.rpc.client import Client
from tenure_runtime.rpc.identity import Role

KEYS: Final = {
    Role.OPERATOR: "operator",
    Role.USER: "operator",
    Role.SERVICE: "scheduler",
    Role.AGENT: "agent-1",
}
"""Whose key is shown where a role is needed, the first that is allowed."""
BUGS: Final = {grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.DATA_LOSS}
LEAKS: Final = (
    *(
        "Traceback",
        'File "',
        "asyncpg",
        "psycopg",
        "SELECT ",
        "INSERT INTO",
        "UPDATE ",
        "site-packages",
    ),
    *("object at 0x", "KeyError", "ValueError", "AttributeError", "TypeError", "/tmp/", "pydantic"),
)
"""What a refusal never says: how the service is made."""
CALL_S: Final = 0.4
AT_ONCE: Final = 24


@dataclass
class Outcome:
    """What came of fuzzing one call."""

    method: str
    codes: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)


class Fuzzer:
    """Sends requests to one service of a suite."""

    def __init__(self, suite: RunningSuite, names: Sequence[str]) -> None:
        self._suite = suite
        self._names = names

    async def call(self, service: str, method: MethodDescriptor, count: int, seed: int) -> Outcome:
        """Send `count` requests to a call; each is known by the seed and its number."""
        name, permissions = table_of(service)
        path = f"/{name}/{method.name}"
        roles = permissions.roles_of_method[path]
        key = next(key for role, key in KEYS.items() if role in roles)
        outcome = Outcome(path)
        numbers = iter(range(count))
        async with self._suite.client(SERVED_BY[service], key=key) as client:

            async def work() -> None:
                for number in numbers:
                    made = Maker((seed, path, number), self._names)
                    request = made.request(method.input_type, EXAMPLES.get(method.name))
                    await self._one(client, method, path, request, outcome, f"{seed}/{number}")

            await asyncio.gather(*(work() for _ in range(min(AT_ONCE, count))))
        return outcome

    async def _one(
        self,
        client: Client,
        method: MethodDescriptor,
        path: str,
        request: bytes,
        outcome: Outcome,
        which: str,
    ) -> None:
        metadata = client._metadata()
        options: dict[str, Any] = {"timeout": CALL_S, "metadata": metadata}
        try:
            if method.client_streaming:
                stream = client.channel.stream_stream(path, bytes, bytes)(**options)
                await stream.write(request)
                await stream.done_writing()
                await stream.read()
                stream.cancel()
            elif method.server_streaming:
                reading = client.channel.unary_stream(path, bytes, bytes)(request, **options)
                await reading.read()
                reading.cancel()
            else:
                await client.channel.unary_unary(path, bytes, bytes)(request, **options)
            outcome.codes["OK"] += 1
        except grpc.aio.AioRpcError as error:
            outcome.codes[error.code().name] += 1
            said = error.details() or ""
            if error.code() in BUGS or any(leak in said for leak in LEAKS):
                outcome.faults.append(f"{path} {which}: {error.code().name} {said[:300]!r}")


def methods() -> list[tuple[str, MethodDescriptor]]:
    """Return every call of every contract; those that end what others need come last."""
    found = [(service, method) for service in CONTRACTS for method in contract_of(service).methods]
    last = ("StepDown", "FenceEpoch", "AcquireEpoch", "DeletePool")
    return sorted(found, key=lambda each: each[1].name in last)


async def fuzz(
    suite: RunningSuite, names: Sequence[str], count: int, seed: int
) -> AsyncIterator[tuple[Outcome, float]]:
    """Yield what came of each call, and how many requests a second it took."""
    fuzzer = Fuzzer(suite, names)
    for service, method in methods():
        began = time.monotonic()
        outcome = await fuzzer.call(service, method, count, seed)
        yield outcome, count / (time.monotonic() - began)
