"""CreateApiKey, ListApiKeys, RotateApiKey, RevokeApiKey: keys by call, over real gRPC."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.contract.admission.harness import Admission, Caller, a_lease, request_id
from tests.support.databases import open_test_pool

from tenure.admission.v1 import admission_pb2 as calls
from tenure.admission.v1 import identity_pb2 as pb
from tenure_admission import app
from tenure_core.errors import Forbidden, Invalid, NotFound, Unauthenticated, WrongState
from tenure_core.timebase import DAY_MS, HOUR_MS, MINUTE_MS
from tenure_runtime.rpc.wire import to_duration, to_millis, to_timestamp


def a_key(caller: str = "ann", **fields: Any) -> pb.ApiKey:
    return pb.ApiKey(**{"caller": caller, "roles": [pb.ROLE_MEMBER], **fields})


async def make(maker: Caller, key: pb.ApiKey | None = None, **fields: Any) -> Any:
    return await maker(pb.CreateApiKeyRequest(api_key=key or a_key(), **fields))


async def names(viewer: Caller, **fields: Any) -> list[str]:
    answer = await viewer(pb.ListApiKeysRequest(**fields))
    return [key.name for key in answer.api_keys]


async def whoami(caller: Caller) -> tuple[str, list[int]]:
    answer = await caller(pb.IssueTokenRequest())
    return answer.caller, list(answer.roles)


async def test_a_key_opens_what_its_roles_may_under_its_callers_name(admission: Admission) -> None:
    operator = await admission.caller("operator")

    made = await make(operator, a_key(description="of ann's laptop"))
    ann = await admission.bearer(made.secret)
    lease = await ann.create()

    assert made.api_key.name.startswith("apiKeys/")
    assert made.secret.startswith(f"tnk_{made.api_key.name.removeprefix('apiKeys/')}_")
    assert (made.api_key.caller, list(made.api_key.roles)) == ("ann", [pb.ROLE_MEMBER])
    assert (made.api_key.creator, made.api_key.description) == ("operator", "of ann's laptop")
    assert lease.owner == "ann"
    with pytest.raises(Forbidden) as caught:
        await ann(calls.VerifyUsageRequest())
    assert caught.value.reason == "METHOD_FORBIDDEN"


async def test_a_repeat_makes_no_second_key_and_says_that_the_secret_was_shown(
    admission: Admission,
) -> None:
    operator = await admission.caller("operator")
    again = request_id()

    made = await make(operator, request_id=again)
    with pytest.raises(WrongState) as caught:
        await make(operator, request_id=again)
    with pytest.raises(Invalid) as reused:
        await make(operator, a_key("bob"), request_id=again)

    assert caught.value.reason == "SECRET_SHOWN_ONCE"
    assert caught.value.metadata["name"] == made.api_key.name
    assert reused.value.reason == "REQUEST_ID_REUSED"
    assert await names(operator) == [made.api_key.name]


async def test_of_many_repeats_at_once_one_gets_the_secret(admission: Admission) -> None:
    operator = await admission.caller("operator")
    again = request_id()

    answers = await asyncio.gather(
        *(make(operator, request_id=again) for _ in range(8)), return_exceptions=True
    )

    made = [each for each in answers if isinstance(each, pb.CreateApiKeyResponse)]
    others = {each.reason for each in answers if isinstance(each, WrongState)}
    assert (len(made), others) == (1, {"SECRET_SHOWN_ONCE"})
    assert await names(operator) == [made[0].api_key.name]


@pytest.mark.postgres
async def test_the_database_never_holds_a_secret(stored: Admission, database_dsn: str) -> None:
    operator = await stored.caller("operator")
    made = await make(operator, request_id=request_id())
    turned = await operator(pb.RotateApiKeyRequest(name=made.api_key.name, request_id=request_id()))

    pool = await open_test_pool(database_dsn, app.SCHEMA)
    tables = await pool.fetch(
        "SELECT table_name FROM information_schema.tables WHERE table_schema = $1", app.SCHEMA
    )
    dump = ""
    for row in tables:
        for found in await pool.fetch(f'SELECT t::text AS all FROM "{row["table_name"]}" t'):
            dump += found["all"]
    await pool.close()

    assert made.api_key.name.removeprefix("apiKeys/") in dump
    for secret in (made.secret, turned.secret):
        bare = secret.rpartition("_")[2]
        assert bare not in dump
        assert bare.encode().hex() not in dump


async def test_a_withdrawn_key_is_dead_at_once_and_stays_so(admission: Admission) -> None:
    operator = await admission.caller("operator")
    made = await make(operator)
    ann = await admission.bearer(made.secret)
    await whoami(ann)

    first = await operator(pb.RevokeApiKeyRequest(name=made.api_key.name))
    admission.clock.ahead_ms += MINUTE_MS
    second = await operator(pb.RevokeApiKeyRequest(name=made.api_key.name))

    with pytest.raises(Unauthenticated) as caught:
        await whoami(ann)
    assert caught.value.reason == "API_KEY_INVALID"
    assert first.api_key.revoker == "operator"
    assert first.api_key.HasField("revoke_time")
    assert second == first
    assert await names(operator) == []
    assert await names(operator, show_ended=True) == [made.api_key.name]


async def test_a_key_opens_nothing_from_its_expiry_on(admission: Admission) -> None:
    operator = await admission.caller("operator")
    at = admission.clock.now_ms() + HOUR_MS
    made = await make(operator, a_key(expire_time=to_timestamp(at)))
    ann = await admission.bearer(made.secret)

    assert await whoami(ann) == ("ann", [pb.ROLE_MEMBER])
    admission.clock.ahead_ms += HOUR_MS
    with pytest.raises(Unauthenticated) as caught:
        await whoami(ann)
    assert caught.value.reason == "API_KEY_INVALID"


async def test_a_rotated_key_goes_on_for_the_overlap_only(admission: Admission) -> None:
    operator = await admission.caller("operator")
    made = await make(operator, a_key(scope=pb.KeyScope(pools=["gpu"])))

    turned = await operator(
        pb.RotateApiKeyRequest(name=made.api_key.name, overlap=to_duration(HOUR_MS))
    )
    old, new = await admission.bearer(made.secret), await admission.bearer(turned.secret)

    assert turned.replaced.replaced_by == turned.api_key.name
    assert list(turned.api_key.scope.pools) == ["gpu"]
    assert await whoami(old) == await whoami(new) == ("ann", [pb.ROLE_MEMBER])
    admission.clock.ahead_ms += HOUR_MS + 1
    with pytest.raises(Unauthenticated):
        await whoami(old)
    assert await whoami(new) == ("ann", [pb.ROLE_MEMBER])
    with pytest.raises(WrongState) as caught:
        await operator(pb.RotateApiKeyRequest(name=made.api_key.name))
    assert caught.value.reason == "KEY_ENDED"


async def test_a_repeated_rotation_makes_no_third_key(admission: Admission) -> None:
    operator = await admission.caller("operator")
    made = await make(operator)
    request = pb.RotateApiKeyRequest(name=made.api_key.name, request_id=request_id())

    turned = await operator(request)
    with pytest.raises(WrongState) as caught:
        await operator(request)

    assert caught.value.metadata["name"] == turned.api_key.name
    assert sorted(await names(operator)) == sorted([made.api_key.name, turned.api_key.name])


async def test_ones_own_key_is_rotated_without_gaining_time_or_rights(admission: Admission) -> None:
    """A limited key that is found must not lead to the caller's whole one."""
    operator = await admission.caller("operator")
    at = admission.clock.now_ms() + DAY_MS
    whole = await make(operator, a_key(expire_time=to_timestamp(at)))
    limited = await make(operator, a_key(scope=pb.KeyScope(projects=["x"])))
    ann, narrow = await admission.bearer(whole.secret), await admission.bearer(limited.secret)

    admission.clock.ahead_ms += HOUR_MS
    later = to_timestamp(at + DAY_MS)
    turned = await ann(pb.RotateApiKeyRequest(name=whole.api_key.name, expire_time=later))

    assert to_millis(turned.api_key.expire_time) == at
    for touch in (pb.RotateApiKeyRequest, pb.RevokeApiKeyRequest):
        with pytest.raises(NotFound) as caught:
            await narrow(touch(name=whole.api_key.name))
        assert caught.value.reason == "KEY_NOT_FOUND"


async def test_others_keys_do_not_exist_for_members(admission: Admission) -> None:
    operator = await admission.caller("operator")
    ann = await admission.bearer((await make(operator)).secret)
    bobs = await make(operator, a_key("bob"))

    assert bobs.api_key.name not in await names(ann)
    assert await names(ann, caller="bob") == []
    with pytest.raises(NotFound) as caught:
        await ann(pb.RevokeApiKeyRequest(name=bobs.api_key.name))
    assert caught.value.reason == "KEY_NOT_FOUND"
    with pytest.raises(Forbidden) as forbidden:
        await make(ann)
    assert forbidden.value.reason == "METHOD_FORBIDDEN"


async def test_a_domain_admin_makes_keys_inside_its_projects_only(admission: Admission) -> None:
    operator = await admission.caller("operator")
    admin_key = a_key("dora", roles=[pb.ROLE_DOMAIN_ADMIN], administers=["x", "y"])
    dora = await admission.bearer((await make(operator, admin_key)).secret)
    inside = pb.KeyScope(projects=["x"])

    made = await make(dora, a_key("eve", scope=inside))
    refused = [
        a_key("eve"),
        a_key("eve", scope=pb.KeyScope(projects=["x", "z"])),
        a_key("eve", roles=[pb.ROLE_OPERATOR]),
        a_key("eve", roles=[pb.ROLE_DOMAIN_ADMIN], administers=["x"], scope=inside),
        a_key("eve", roles=[pb.ROLE_PROJECT_ADMIN], administers=["z"], scope=inside),
    ]
    for key in refused:
        with pytest.raises(Forbidden) as caught:
            await make(dora, key)
        assert caught.value.reason == "KEY_FORBIDDEN"
    operators = await make(operator, a_key("bob"))

    assert made.api_key.creator == "dora"
    assert made.api_key.name in await names(dora)
    assert operators.api_key.name not in await names(dora)
    with pytest.raises(NotFound):
        await dora(pb.RevokeApiKeyRequest(name=operators.api_key.name))
    await dora(pb.RevokeApiKeyRequest(name=made.api_key.name))


async def test_everything_wrong_with_a_key_is_said_at_once(admission: Admission) -> None:
    operator = await admission.caller("operator")
    past = to_timestamp(admission.clock.now_ms())
    wrong = a_key(
        "Ann B",
        roles=[pb.ROLE_SERVICE, pb.ROLE_OPERATOR],
        scope=pb.KeyScope(pools=[""]),
        administers=["x"],
        description="d" * 201,
        expire_time=past,
    )
    with pytest.raises(Invalid) as caught:
        await make(operator, wrong, request_id="no uuid")
    assert [(each.field, each.reason) for each in caught.value.violations] == [
        ("request_id", "REQUEST_ID_INVALID"),
        ("api_key.caller", "NAME_INVALID"),
        ("api_key.roles", "VALUE_UNKNOWN"),
        ("api_key.administers", "SCOPE_INVALID"),
        ("api_key.scope", "SCOPE_INVALID"),
        ("api_key.scope.pools[0]", "REQUIRED"),
        ("api_key.description", "LENGTH_OUT_OF_RANGE"),
        ("api_key.expire_time", "TIME_IN_PAST"),
    ]


async def test_keys_are_listed_a_page_at_a_time(admission: Admission) -> None:
    operator = await admission.caller("operator")
    made = sorted([(await make(operator)).api_key.name for _ in range(5)])
    seen, token = [], ""
    while True:
        page = await operator(pb.ListApiKeysRequest(page_size=2, page_token=token))
        seen += [key.name for key in page.api_keys]
        token = page.next_page_token
        if not token:
            break
    assert seen == made


async def test_a_read_only_key_reads_and_changes_nothing(admission: Admission) -> None:
    operator = await admission.caller("operator")
    ann = await admission.bearer((await make(operator)).secret)
    reader_key = await make(operator, a_key(scope=pb.KeyScope(read_only=True)))
    reader = await admission.bearer(reader_key.secret)
    lease = await ann.create(a_lease())

    assert await reader.get(lease) == lease
    for request in (calls.CancelLeaseRequest(name=lease.name), calls.CreateLeaseRequest()):
        with pytest.raises(Forbidden) as caught:
            await reader(request)
        assert caught.value.reason == "SCOPE_FORBIDDEN"
