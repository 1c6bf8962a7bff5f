"""How a service other than admission verifies tokens: by the keys that admission publishes."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import Any

import jwt

from tenure.admission.v1 import identity_pb2
from tenure.admission.v1.identity_pb2_grpc import IdentityServiceStub
from tenure_core.identity.throttling import Rate
from tenure_runtime.clocks import SystemClock
from tenure_runtime.process import run_loop
from tenure_runtime.rpc.client import Client, connect
from tenure_runtime.rpc.gate import Gate
from tenure_runtime.rpc.identity import Keyring
from tenure_runtime.rpc.key_sets import REFRESH_S, KeySet, keys_of
from tenure_runtime.rpc.tokens import TokenVerifier
from tenure_runtime.settings import ServiceSettings


def rate_of(settings: ServiceSettings) -> Rate | None:
    """Return how often one identity may call, None for as often as it likes."""
    per_s = settings.calls_per_s
    return None if per_s is None else Rate(per_s, 2 * per_s)


def gate_of(
    settings: ServiceSettings, keyring: Keyring
) -> tuple[Gate, list[Coroutine[Any, Any, object]]]:
    """Return the gate of a service, and the loops that keep it up to date.

    It takes keyring keys, and tokens where the service knows who issues them.
    """
    rate = rate_of(settings)
    if settings.admission_address is None:
        return Gate(keyring, calls=rate), []
    client = connect(settings.admission_address, api_key=settings.api_key, tls=settings.client_tls)
    keys = KeySet(lambda: fetch(client))

    async def refresh() -> None:
        async with client:
            await run_loop("tokens.keys", keys.run_once, period_s=REFRESH_S)

    return Gate(keyring, [TokenVerifier(keys, SystemClock())], calls=rate), [refresh()]


async def fetch(client: Client) -> Mapping[str, jwt.PyJWK]:
    """Return the keys that admission publishes."""
    stub = IdentityServiceStub(client.channel)
    request = identity_pb2.GetSigningKeysRequest()
    answer = await client.call(stub.GetSigningKeys, request, timeout_s=2.0, retry=False)
    return keys_of(answer.jwks)
