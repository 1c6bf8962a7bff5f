"""IssueToken and GetSigningKeys: what tokens open, where, how long; and what is no token."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from tests.contract.admission.harness import Admission, Caller, a_lease, in_memory, running
from tests.support import echo
from tests.support.servers import Served, serving

from tenure.admission.v1 import admission_pb2 as calls
from tenure.admission.v1 import identity_pb2 as pb
from tenure_admission.signing import LEAD_MS, RENEWAL_MS
from tenure_admission.store.memory import MemoryStore
from tenure_core.errors import (
    DomainError,
    Forbidden,
    Unauthenticated,
    Unavailable,
)
from tenure_core.identity.throttling import Rate
from tenure_core.timebase import DAY_MS, MINUTE_MS
from tenure_runtime.clocks import SystemClock
from tenure_runtime.rpc.draining import Draining
from tenure_runtime.rpc.gate import Gate, Verifier
from tenure_runtime.rpc.identity import Identity, Keyring, Role, current_identity
from tenure_runtime.rpc.key_sets import KeySet
from tenure_runtime.rpc.published_keys import fetch
from tenure_runtime.rpc.tokens import LEEWAY_MS, TYPE, TokenVerifier, claims_of

LIFETIME_MS = 5 * MINUTE_MS


async def key_of(admission: Admission, **fields: Any) -> pb.CreateApiKeyResponse:
    operator = await admission.caller("operator")
    key = pb.ApiKey(**{"caller": "ann", "roles": [pb.ROLE_MEMBER], **fields})
    made: pb.CreateApiKeyResponse = await operator(pb.CreateApiKeyRequest(api_key=key))
    return made


async def token_of(admission: Admission, **fields: Any) -> str:
    caller = await admission.bearer((await key_of(admission, **fields)).secret)
    answer: pb.IssueTokenResponse = await caller(pb.IssueTokenRequest())
    return answer.token


async def reason_of(caller: Caller) -> str:
    """Return why the caller's call is refused; "" when it is not."""
    try:
        await caller(calls.ListLeasesRequest(), retry=False)
    except DomainError as error:
        return error.reason
    return ""


async def _say_caller(text_: str, context: Any) -> str:
    del text_, context
    caller = current_identity()
    return json.dumps([caller.name, sorted(caller.roles)])


@asynccontextmanager
async def follower(admission: Admission, **options: Any) -> AsyncIterator[tuple[Served, KeySet]]:
    """Another service that says who calls, knows admission and verifies tokens by itself."""
    client = await admission.served.client("service")
    keys = KeySet(lambda: fetch(client), **options)

    def gate(keyring: Keyring) -> Gate:
        return Gate(keyring, [TokenVerifier(keys, admission.clock)])

    async with serving(
        echo.register, echo.Echo(_say_caller), echo.SERVICE, methods=echo.METHODS, gate=gate
    ) as served:
        yield served, keys


async def who(served: Served, credential: str) -> list[Any]:
    client = await served.bearer(credential)
    answer = await client.call(echo.EchoStub(client.channel).Echo, echo.text(""), retry=False)
    said: list[Any] = json.loads(answer.value)
    return said


async def test_a_token_opens_every_service_and_each_verifies_it_by_itself(
    admission: Admission,
) -> None:
    token = await token_of(admission)
    ann = await admission.bearer(token)
    async with follower(admission) as (served, _):
        assert await who(served, token) == ["ann", ["user"]]
        assert await who(served, served.keys["user"]) == ["user", ["user"]]
    assert (await ann.create(a_lease())).owner == "ann"


async def test_a_stored_key_itself_opens_admission_only(admission: Admission) -> None:
    made = await key_of(admission)
    assert await reason_of(await admission.bearer(made.secret)) == ""
    async with follower(admission) as (served, _):
        with pytest.raises(Unauthenticated) as caught:
            await who(served, made.secret)
    assert caught.value.reason == "API_KEY_INVALID"


async def test_a_withdrawn_key_is_dead_everywhere_when_its_tokens_lifetime_is_over(
    admission: Admission,
) -> None:
    made = await key_of(admission)
    ann = await admission.bearer(made.secret)
    answer = await ann(pb.IssueTokenRequest())
    operator = await admission.caller("operator")
    async with follower(admission) as (served, _):
        await operator(pb.RevokeApiKeyRequest(name=made.api_key.name))
        with pytest.raises(Unauthenticated):
            await ann(pb.IssueTokenRequest())
        assert await who(served, answer.token) == ["ann", ["user"]]

        admission.clock.ahead_ms += LIFETIME_MS + LEEWAY_MS
        with pytest.raises(Unauthenticated) as caught:
            await who(served, answer.token)
    assert answer.lifetime.seconds == LIFETIME_MS // 1_000
    assert caught.value.reason == "TOKEN_EXPIRED"


async def test_a_token_is_not_exchanged_for_the_next(admission: Admission) -> None:
    ann = await admission.bearer(await token_of(admission))
    with pytest.raises(Forbidden) as caught:
        await ann(pb.IssueTokenRequest())
    assert caught.value.reason == "CREDENTIAL_NEEDED"


async def test_scope_and_projects_travel_with_the_token(admission: Admission) -> None:
    scope = pb.KeyScope(pools=["a"], projects=["x"])
    token = await token_of(admission, roles=[pb.ROLE_PROJECT_ADMIN], administers=["x"], scope=scope)
    claims = jwt.decode(token, options={"verify_signature": False})
    assert {
        name: claims[name] for name in ("sub", "roles", "pools", "projects", "administers")
    } == {
        "sub": "ann",
        "roles": ["project-admin"],
        "pools": ["a"],
        "projects": ["x"],
        "administers": ["x"],
    }


async def test_keys_are_rotated_without_refusing_anybody(admission: Admission) -> None:
    """The next key is published before it signs; the last one until its tokens have expired."""
    first = await token_of(admission)
    async with follower(admission) as (served, keys):
        await who(served, first)
        admission.clock.ahead_ms += DAY_MS
        await admission.signing.run_once()
        await keys.run_once()
        known = keys.version
        still = await token_of(admission)
        admission.clock.ahead_ms += LEAD_MS
        await admission.signing.run_once()
        second = await token_of(admission)

        kids = [jwt.get_unverified_header(token)["kid"] for token in (first, still, second)]
        assert kids[0] == kids[1] != kids[2]
        assert await who(served, still) == await who(served, second) == ["ann", ["user"]]
        assert keys.version == known, "nobody had to ask for the new key"

        admission.clock.ahead_ms += LIFETIME_MS + LEEWAY_MS + RENEWAL_MS
        await admission.signing.run_once()
        await keys.run_once()
        assert await keys.find(kids[0]) is None


async def test_each_replica_signs_by_its_own_key_and_all_are_known(admission: Admission) -> None:
    async with running(admission.store, Draining(), admission.served) as other:
        one, two = await token_of(admission), await token_of(other)
        assert (await who_of(admission, two), await who_of(other, one)) == ("", "")


async def who_of(admission: Admission, token: str) -> str:
    return await reason_of(await admission.bearer(token))


async def test_many_unknown_key_ids_cost_one_question(admission: Admission) -> None:
    asked = 0
    async with follower(admission) as (served, keys):
        inner = keys._fetch

        async def counted() -> Any:
            nonlocal asked
            asked += 1
            return await inner()

        keys._fetch = counted
        forged = [_signed(Ed25519PrivateKey.generate(), kid=f"made-up-{n}") for n in range(15)]
        answers = await asyncio.gather(
            *(who(served, token) for token in forged), return_exceptions=True
        )
        assert {getattr(each, "reason", each) for each in answers} == {"TOKEN_INVALID"}
        assert asked == 1


async def test_known_tokens_go_on_while_admission_is_away_and_others_are_to_be_tried_again() -> (
    None
):
    draining = Draining()
    async with running(MemoryStore(draining), draining) as admission:
        token = await token_of(admission)
        async with follower(admission, gap_s=0.0) as (served, _):
            await who(served, token)
            await admission.served.server.stop(0)
            assert await who(served, token) == ["ann", ["user"]]
            with pytest.raises(Unavailable) as caught:
                await who(served, _signed(Ed25519PrivateKey.generate(), kid="other"))
    assert caught.value.reason == "TOKEN_KEYS_UNAVAILABLE"


async def test_a_stream_ends_with_its_token() -> None:
    """Or a watch would go on for as long as it likes after its key was withdrawn."""
    async with in_memory() as admission:
        # The edge cuts by the wall clock, so the token is made to be old instead.
        admission.clock.ahead_ms -= LIFETIME_MS + LEEWAY_MS - 1_500
        old = await token_of(admission)
        admission.clock.ahead_ms = 0
        ann = await admission.bearer(old)
        async with ann.client.stream(ann.stub.WatchLeases, calls.WatchLeasesRequest()) as stream:
            assert await stream.read() is not None
            async with asyncio.timeout(5):
                with pytest.raises(Unavailable) as caught:
                    await stream.read()
    assert caught.value.reason == "CREDENTIAL_ENDED"


def _claims(**changes: Any) -> dict[str, Any]:
    identity = Identity("ann", frozenset({Role.OPERATOR}))
    claims = claims_of(identity, SystemClock().now_ms(), LIFETIME_MS, "t")
    merged = claims | changes
    return {name: value for name, value in merged.items() if value is not None}


def _signed(key: Any, *, kid: Any = None, alg: str = "EdDSA", **changes: Any) -> str:
    headers = {"typ": TYPE} if kid is None else {"typ": TYPE, "kid": kid}
    return jwt.encode(_claims(**changes), key, algorithm=alg, headers=headers)


def _b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _by_hand(header: dict[str, Any], signature: bytes = b"") -> str:
    body = f"{_b64(json.dumps(header).encode())}.{_b64(json.dumps(_claims()).encode())}"
    return f"{body}.{_b64(signature)}"


def forgeries(admission: Admission) -> dict[str, str]:
    """Return tokens that must not open anything, by what is wrong with them."""
    current = admission.signing._current
    assert current is not None
    right, kid = current.private, current.id
    raw = right.public_key().public_bytes(
        serialization.Encoding.Raw, serialization.PublicFormat.Raw
    )
    pem = right.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    none = {"alg": "none", "typ": TYPE, "kid": kid}
    hs = {"alg": "HS256", "typ": TYPE, "kid": kid}
    signed = _signed(right, kid=kid)
    head, body, signature = signed.split(".")
    other = _b64(json.dumps(_claims(sub="eve")).encode())
    stranger = Ed25519PrivateKey.generate()
    jwk = json.loads(jwt.algorithms.OKPAlgorithm.to_jwk(stranger.public_key()))

    def confused(secret: bytes) -> str:
        text = _by_hand(hs).rpartition(".")[0]
        return f"{text}.{_b64(hmac.new(secret, text.encode(), hashlib.sha256).digest())}"

    return {
        "alg none": _by_hand(none),
        "alg None": _by_hand({**none, "alg": "None"}),
        "no alg": _by_hand({"typ": TYPE, "kid": kid}),
        "signature left out": f"{head}.{body}.",
        "signature of another body": f"{head}.{other}.{signature}",
        "HS256 with the raw public key": confused(raw),
        "HS256 with the public PEM": confused(pem),
        "a stranger's key": _signed(stranger, kid=kid),
        "key in the header": jwt.encode(
            _claims(), stranger, algorithm="EdDSA", headers={"typ": TYPE, "kid": kid, "jwk": jwk}
        ),
        "kid as a path": _signed(right, kid="../../etc/passwd"),
        "kid with a NUL": _signed(right, kid=f"{kid}\0"),
        "kid as SQL": _signed(right, kid="x' OR '1'='1"),
        "kid too long": _signed(right, kid="k" * 1_000),
        "no kid": _signed(right),
        "wrong audience": _signed(right, kid=kid, aud="other"),
        "no audience": _signed(right, kid=kid, aud=None),
        "no expiry": _signed(right, kid=kid, exp=None),
        "expiry as text": _signed(right, kid=kid, exp="never"),
        "not before": _signed(right, kid=kid, nbf=_claims()["nbf"] + 120),
        "issued in the future": _signed(right, kid=kid, iat=_claims()["iat"] + 120),
        "unknown role": _signed(right, kid=kid, roles=["root"]),
        "roles as text": _signed(right, kid=kid, roles=1),
        "wrong type": jwt.encode(_claims(), right, algorithm="EdDSA", headers={"kid": kid}),
        "critical header": jwt.encode(
            _claims(),
            right,
            algorithm="EdDSA",
            headers={"typ": TYPE, "kid": kid, "crit": ["exp"]},
        ),
        "huge": _signed(right, kid=kid, padding="x" * 20_000),
        "nested": f"{_b64(b'[' * 1_500)}.{_b64(b'[' * 1_500)}.",
        "three dots": "a.b.c",
        "another issuer": _signed(right, kid=kid, iss="https://evil.example"),
    }


async def test_no_forged_token_opens_anything() -> None:
    """Each is right but for one thing; the right one is let in."""
    draining, patient = Draining(), Rate(per_s=1_000, burst=1_000)

    def gate(keyring: Keyring, verifiers: Sequence[Verifier]) -> Gate:
        return Gate(keyring, verifiers, failures=patient)

    async with running(MemoryStore(draining), draining, gate=gate) as admission:
        current = admission.signing._current
        assert current is not None
        right = _signed(current.private, kid=current.id)
        assert await reason_of(await admission.bearer(right)) == ""
        refused = {
            what: await reason_of(await admission.bearer(token))
            for what, token in forgeries(admission).items()
        }
    others = {
        # gRPC itself takes no more than 8 KiB of metadata.
        "huge": "RESOURCE_EXHAUSTED",
        # They say of another issuer, or nothing.
        **dict.fromkeys(
            ["nested", "three dots", "another issuer", "critical header"], "API_KEY_INVALID"
        ),
    }
    assert refused == dict.fromkeys(refused, "TOKEN_INVALID") | others
