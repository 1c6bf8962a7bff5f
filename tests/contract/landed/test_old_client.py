"""A client built from the contracts of the last landing still gets its work done."""

from __future__ import annotations

from typing import Any

import pytest
from tests.contract.admission.harness import Caller, on_postgres
from tests.contract.landed import image

from tenure_core.errors import Conflict

ADMISSION = "tenure.admission.v1"


class OldCaller:
    """Calls admission with the messages of the image alone."""

    def __init__(self, caller: Caller) -> None:
        self._client = caller.client

    async def __call__(self, call: str, **fields: Any) -> Any:
        """Make one call; its fields are plain values, as of JSON."""
        request = image.message_class(f"{ADMISSION}.{call}Request")(**fields)
        answer = image.message_class(f"{ADMISSION}.{call}Response")
        method = self._client.channel.unary_unary(
            f"/{ADMISSION}.AdmissionService/{call}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=answer.FromString,
        )
        return await self._client.call(method, request)


def an_old_lease(**fields: Any) -> Any:
    wanted: Any = image.message_class(f"{ADMISSION}.Lease")(
        node_count=1, amounts={"cpu": 1_000}, **fields
    )
    wanted.terms.best_effort.SetInParent()
    wanted.duration.FromSeconds(60)
    return wanted


@pytest.fixture
async def old(database_dsn: str) -> Any:
    async with on_postgres(database_dsn) as admission:
        yield OldCaller(await admission.caller())


async def test_an_old_client_creates_repeats_reads_changes_and_cancels(old: OldCaller) -> None:
    request_id = "0b3c1c3e-3b5e-4f0f-9a53-6a1b6a0c7a01"
    created = (await old("CreateLease", lease=an_old_lease(), request_id=request_id)).lease
    repeated = (await old("CreateLease", lease=an_old_lease(), request_id=request_id)).lease
    assert repeated == created
    assert (await old("GetLease", name=created.name)).lease == created
    assert [lease.name for lease in (await old("ListLeases")).leases] == [created.name]

    wish = an_old_lease(name=created.name, etag=created.etag, priority=7)
    changed = (await old("UpdateLease", lease=wish, update_mask={"paths": ["priority"]})).lease
    assert (changed.priority, changed.version) == (7, created.version + 1)
    with pytest.raises(Conflict) as stale:
        await old("UpdateLease", lease=wish, update_mask={"paths": ["priority"]})
    assert stale.value.reason == "ETAG_MISMATCH"

    cancelled = (await old("CancelLease", name=created.name)).lease
    assert cancelled.state == type(created).State.Value("STATE_CANCELLED")
    assert list((await old("ExplainLease", name=created.name)).sentences)
