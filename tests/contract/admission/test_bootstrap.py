"""The first admin: a keyring's operator makes an operator by a call, and may then be taken out."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from tests.contract.admission.test_process import Process

from tenure.admission.v1 import identity_pb2 as pb
from tenure_core.errors import Unauthenticated
from tenure_runtime.rpc.identity import Keyring, Role, create_key

pytestmark = [pytest.mark.postgres]


async def test_an_operator_made_by_the_first_one_goes_on_without_it(
    tmp_path: Path, database_dsn: str
) -> None:
    process = Process(tmp_path, database_dsn)
    first_key, first = create_key("operator", {Role.OPERATOR})
    _, service = create_key("scheduler", {Role.SERVICE})
    Keyring([first, service]).store(tmp_path / "keyring.json")
    wanted = pb.ApiKey(caller="ann", roles=[pb.ROLE_OPERATOR])
    request: Any = pb.CreateApiKeyRequest(api_key=wanted)

    process.key = first_key
    await process.start()
    try:
        caller = process.caller()
        second_key = (await caller(request)).secret
        await caller.client.close()
        await process.end(signal.SIGTERM)
        Keyring([service]).store(tmp_path / "keyring.json")
        await process.start()
        with pytest.raises(Unauthenticated):
            await caller_of(process, first_key)(request)
        third = await caller_of(process, second_key)(request)
    finally:
        await process.end(signal.SIGKILL)

    assert (third.api_key.caller, third.api_key.creator) == ("ann", "ann")


def caller_of(process: Process, key: str) -> Any:
    process.key = key
    return process.caller()
