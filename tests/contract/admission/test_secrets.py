"""Secrets of leases at admission: hidden at once, sealed for agents, gone with the lease's end."""

from __future__ import annotations

import json

import pytest
from tests.contract.admission.harness import (
    Admission,
    State,
    a_lease,
    record,
    request_id,
    transition,
)

from tenure.admission.v1 import admission_pb2 as calls
from tenure.admission.v1 import lease_pb2 as pb
from tenure.type.v1.work_pb2 import Work
from tenure_core.errors import Forbidden, Invalid, WrongState
from tenure_runtime.sealing import SealingKey

VALUE = "hunter2-hunter2"


def _lease(**secrets: str) -> pb.Lease:
    work = Work(command=["true"], environment={"PLAIN": "shown"}, secrets=secrets)
    return a_lease(work=work)


async def _seal(admission: Admission, lease: pb.Lease, *keys: SealingKey) -> list[bytes]:
    leader = await admission.caller("service")
    request = calls.SealSecretsRequest(lease=lease.name, sealing_keys=[key.public for key in keys])
    response: calls.SealSecretsResponse = await leader(request)
    return list(response.sealed)


def _opened(lease: pb.Lease, key: SealingKey, sealed: bytes) -> dict[str, str]:
    values: dict[str, str] = json.loads(key.unseal(sealed, lease.name.removeprefix("leases/")))
    return values


async def test_values_are_hidden_in_every_answer_and_opened_by_agents(
    admission: Admission,
) -> None:
    user, first, second = await admission.caller(), SealingKey.made(), SealingKey.made()
    lease = await user.create(_lease(PASSWORD=VALUE))
    sealed = await _seal(admission, lease, first, second)

    assert dict(lease.work.secrets) == {"PASSWORD": "[hidden]"}
    assert dict((await user.get(lease)).work.secrets) == {"PASSWORD": "[hidden]"}
    assert dict(lease.work.environment) == {"PLAIN": "shown"}
    assert _opened(lease, first, sealed[0]) == {"PASSWORD": VALUE}
    assert _opened(lease, second, sealed[1]) == {"PASSWORD": VALUE}


async def test_a_batch_keeps_each_leases_secrets(admission: Admission) -> None:
    user, key = await admission.caller(), SealingKey.made()
    request = calls.BatchCreateLeasesRequest(
        requests=[calls.CreateLeaseRequest(lease=_lease(P=f"{VALUE}{n}")) for n in range(2)]
    )
    leases = [each.lease for each in (await user(request)).results]
    opened = [_opened(one, key, (await _seal(admission, one, key))[0]) for one in leases]
    assert opened == [{"P": f"{VALUE}0"}, {"P": f"{VALUE}1"}]


async def test_secrets_stay_while_the_lease_may_start_again_and_go_with_its_end(
    admission: Admission,
) -> None:
    user, leader = await admission.caller(), await admission.caller("service")
    lease = await user.create(_lease(PASSWORD=VALUE))
    await record(leader, transition(lease, State.STATE_QUEUED))
    assert len(await _seal(admission, lease, SealingKey.made())) == 1
    await user(calls.CancelLeaseRequest(name=lease.name))
    with pytest.raises(WrongState) as caught:
        await _seal(admission, lease, SealingKey.made())
    assert caught.value.reason == "SECRETS_NOT_KEPT"


async def test_a_repeat_is_known_and_one_with_another_secret_is_refused(
    admission: Admission,
) -> None:
    user, same = await admission.caller(), request_id()
    first = await user.create(_lease(PASSWORD=VALUE), request_id=same)
    again = await user.create(_lease(PASSWORD=VALUE), request_id=same)
    with pytest.raises(Invalid) as caught:
        await user.create(_lease(PASSWORD="another"), request_id=same)
    assert (again, caught.value.reason) == (first, "REQUEST_ID_REUSED")


async def test_users_and_agents_may_not_have_secrets_sealed(admission: Admission) -> None:
    user = await admission.caller()
    lease = await user.create(_lease(PASSWORD=VALUE))
    request = calls.SealSecretsRequest(lease=lease.name, sealing_keys=[SealingKey.made().public])
    for role in ("user", "operator", "agent"):
        with pytest.raises(Forbidden):
            await (await admission.caller(role))(request)


async def test_what_cannot_be_kept_is_refused_with_all_that_is_wrong(
    admission: Admission,
) -> None:
    user = await admission.caller()
    work = Work(environment={"A": ""}, secrets={"A": "x" * 32_768, "B=": "", "C": "x" * 32_768})
    with pytest.raises(Invalid) as caught:
        await user.create(a_lease(work=work))
    assert sorted((each.field, each.reason) for each in caught.value.violations) == [
        ("lease.work.secrets", "NOT_APPLICABLE"),
        ("lease.work.secrets[A]", "NAME_TAKEN"),
        ("lease.work.secrets[B=]", "ENVIRONMENT_INVALID"),
    ]


async def test_keys_to_seal_for_are_checked(admission: Admission) -> None:
    lease = await (await admission.caller()).create(_lease(PASSWORD=VALUE))
    leader = await admission.caller("service")
    for keys in ([], [b"short"], [SealingKey.made().public] * 33):
        with pytest.raises(Invalid):
            await leader(calls.SealSecretsRequest(lease=lease.name, sealing_keys=keys))


@pytest.mark.postgres
async def test_the_database_has_no_value_anywhere(stored: Admission) -> None:
    user = await stored.caller()
    await user.create(_lease(PASSWORD=VALUE), request_id=request_id())
    pool = stored.store._pool
    tables = await pool.fetch(
        "SELECT table_name AS name FROM information_schema.tables"
        " WHERE table_schema = current_schema() AND table_type = 'BASE TABLE'"
    )
    assert "lease_secrets" in {row["name"] for row in tables}
    for row in tables:
        found = await pool.fetchval(
            f"SELECT count(*) FROM {row['name']} t WHERE to_jsonb(t)::text LIKE ANY ($1)",
            [f"%{VALUE}%", f"%{VALUE.encode().hex()}%"],
        )
        assert (row["name"], found) == (row["name"], 0)
