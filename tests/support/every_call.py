"""Makes every call of a service as each kind of caller, against the table of its roles."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Final

from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass
from tests.tidy.permissions import CONTRACTS, table_of

from tenure_core.errors import DomainError
from tenure_runtime.rpc.client import Client
from tenure_runtime.rpc.identity import Role

CALLERS: Final = {
    "ada": {Role.USER},
    "operator": {Role.USER, Role.OPERATOR},
    "scheduler": {Role.SERVICE},
    "agent-1": {Role.AGENT},
}
STOLEN: Final = (
    ("scheduler", "agent-1"),
    ("scheduler", "operator"),
    ("operator", "ada"),
    ("operator", "scheduler"),
    ("agent-1", "operator"),
    ("admission", "scheduler"),
)
"""Whose key is shown, and whose certificate with it."""


def contract_of(service: str) -> ServiceDescriptor:
    """Return the descriptor of a contract."""
    module = importlib.import_module(CONTRACTS[service])
    [contract] = module.DESCRIPTOR.services_by_name.values()
    return contract


async def misjudged(
    service: str, connected: Callable[[str, str], Client]
) -> list[tuple[str, str, str, str]]:
    """Return what ends otherwise than the table says: method, key, certificate, refusal.

    `connected(key, certificate)` opens a client that shows the key of one and the certificate of
    another.
    """
    name, permissions = table_of(service)
    wrong = []
    for key, shown in (*((caller, caller) for caller in CALLERS), *STOLEN):
        async with connected(key, shown) as client:
            for method in contract_of(service).methods:
                roles = permissions.roles_of_method[f"/{name}/{method.name}"]
                expected = "CERTIFICATE_MISMATCH" if key != shown else "METHOD_FORBIDDEN"
                if key == shown and roles & CALLERS[key]:
                    expected = ""
                told = await _refusal(client, method, expected)
                if told != expected:
                    wrong.append((method.name, key, shown, told))
    return wrong


async def _refusal(client: Client, method: MethodDescriptor, expected: str) -> str:
    """Return why a call with an empty request is not admitted; empty when it is."""
    path = f"/{method.containing_service.full_name}/{method.name}"
    request = GetMessageClass(method.input_type)
    coding = (request.SerializeToString, bytes)
    # A stream that is admitted may say nothing; one that is not ends at once.
    timeout_s = 5 if expected else 0.1
    try:
        if method.client_streaming:
            call = client.channel.stream_stream(path, *coding)
            async with client.duplex(call, timeout_s=timeout_s) as stream:
                await stream.write(request())
                await stream.read()
        elif method.server_streaming:
            call = client.channel.unary_stream(path, *coding)
            async with client.stream(call, request(), timeout_s=timeout_s) as stream:
                await anext(stream)
        else:
            await client.call(client.channel.unary_unary(path, *coding), request(), timeout_s=5)
    except DomainError as error:
        return error.reason if error.reason in ("METHOD_FORBIDDEN", "CERTIFICATE_MISMATCH") else ""
    except StopAsyncIteration:
        pass
    return ""
