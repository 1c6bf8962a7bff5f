"""The table of docs/security.md, call by call: each role, read-only keys and limited keys."""

from __future__ import annotations

import asyncio
import importlib
from typing import Any

import pytest
from tests.contract.admission.harness import Admission, Caller, in_memory
from tests.tidy.permissions import CONTRACTS, table_of

from tenure.admission.v1 import identity_pb2 as pb
from tenure_core.errors import DomainError
from tenure_runtime.rpc.identity import Role
from tenure_runtime.rpc.scoping import is_open_to_limited, is_reading


def methods(contract: str) -> list[Any]:
    module = importlib.import_module(CONTRACTS[contract])
    [service] = module.DESCRIPTOR.services_by_name.values()
    return list(service.methods)


async def reason_of(caller: Caller, contract: str, method: Any) -> str:
    """Return why an empty request is refused; "" when it is not."""
    stub = caller.stub if contract == "admission" else caller.identity
    request = getattr(importlib.import_module(CONTRACTS[contract]), method.input_type.name)()
    try:
        if method.server_streaming:
            async with caller.client.stream(getattr(stub, method.name), request) as stream:
                await stream.read()
        else:
            await caller.client.call(getattr(stub, method.name), request, retry=False)
    except DomainError as error:
        return error.reason
    return ""


async def limited(admission: Admission, **scope: Any) -> Caller:
    operator = await admission.caller("operator")
    key = pb.ApiKey(caller="ann", roles=[pb.ROLE_MEMBER], scope=pb.KeyScope(**scope))
    made = await operator(pb.CreateApiKeyRequest(api_key=key))
    return await admission.bearer(made.secret)


@pytest.mark.parametrize("contract", ["admission", "identity"])
async def test_each_role_may_call_what_the_table_says_and_nothing_else(contract: str) -> None:
    service, permissions = table_of(contract)
    async with in_memory() as admission:
        for role in Role:
            caller = await admission.caller(str(role))
            for method in methods(contract):
                allowed = role in permissions.roles_of_method[f"/{service}/{method.name}"]
                reason = await reason_of(caller, contract, method)
                assert (reason != "METHOD_FORBIDDEN") == allowed, (role, method.name, reason)


@pytest.mark.parametrize("contract", ["admission", "identity"])
async def test_limited_keys_may_call_what_the_table_says_and_nothing_else(contract: str) -> None:
    service, permissions = table_of(contract)
    async with in_memory() as admission:
        reader = await limited(admission, read_only=True)
        narrow = await limited(admission, projects=["x"])
        for method in methods(contract):
            if Role.USER not in permissions.roles_of_method[f"/{service}/{method.name}"]:
                continue
            said = await asyncio.gather(
                reason_of(reader, contract, method), reason_of(narrow, contract, method)
            )
            refused = tuple(reason == "SCOPE_FORBIDDEN" for reason in said)
            closed = (not is_reading(method.name), not is_open_to_limited(method.name))
            assert refused == closed, (method.name, said)
