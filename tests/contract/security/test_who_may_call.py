"""Each call of each service, by each kind of caller, over mutual TLS with its edge as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.message_factory import GetMessageClass
from tests.support.certificates import certified
from tests.support.every_call import CALLERS, contract_of, misjudged
from tests.tidy.permissions import CONTRACTS, table_of

from tenure_runtime.rpc.client import Client, connect
from tenure_runtime.rpc.identity import Keyring, Role, create_key
from tenure_runtime.rpc.server import RpcServer, ServerOptions


def register(service: str, server: grpc.aio.Server) -> None:
    """Serve every method of a contract with handlers that let everything pass."""

    async def answer(request: Any, context: Any) -> bytes:
        return b""

    async def answers(request: Any, context: Any) -> None:
        await context.write(b"")

    makers = {
        (False, False): (grpc.unary_unary_rpc_method_handler, answer),
        (False, True): (grpc.unary_stream_rpc_method_handler, answers),
        (True, True): (grpc.stream_stream_rpc_method_handler, answers),
    }
    handlers = {}
    for method in contract_of(service).methods:
        make, handler = makers[method.client_streaming, method.server_streaming]
        handlers[method.name] = make(handler, GetMessageClass(method.input_type).FromString, bytes)
    name = contract_of(service).full_name
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, handlers),))


@pytest.mark.parametrize("service", CONTRACTS)
async def test_a_call_is_open_to_the_roles_of_the_table_and_to_no_other(
    service: str, tmp_path: Path
) -> None:
    roles = {**CALLERS, "admission": {Role.SERVICE}}
    made = {name: create_key(name, having) for name, having in roles.items()}
    kinds = {"ada": Role.USER, "operator": Role.OPERATOR, "agent-1": Role.AGENT}
    tls = {name: certified(tmp_path, kinds.get(name, Role.SERVICE), name) for name in roles}
    name, permissions = table_of(service)
    server = RpcServer(
        ServerOptions(service, tls=tls["admission"]),
        keyring=Keyring(entry for _, entry in made.values()),
        permissions=permissions,
    )
    server.add(lambda of, to: register(of, to), service, name)
    port = await server.start()

    def connected(key: str, shown: str) -> Client:
        return connect(f"127.0.0.1:{port}", api_key=made[key][0], tls=tls[shown])

    try:
        assert await misjudged(service, connected) == []
    finally:
        await server.stop(0.2)
