"""Tokens of an OIDC issuer, played by a real HTTP server: discovery, keys, rotation, outage."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from pydantic import ValidationError
from tests.contract.admission.harness import Admission, a_lease, running
from tests.support.issuer import AUDIENCE, Issuer

from tenure.admission.v1 import admission_pb2 as calls
from tenure.admission.v1 import identity_pb2 as pb
from tenure_admission.oidc import OidcSettings
from tenure_admission.store.memory import MemoryStore
from tenure_core.errors import DomainError
from tenure_core.identity.throttling import Rate
from tenure_runtime.rpc.draining import Draining
from tenure_runtime.rpc.gate import Gate

PATIENT = Rate(per_s=1_000, burst=1_000)


@asynccontextmanager
async def trusting(issuer: Issuer, **settings: Any) -> AsyncIterator[Admission]:
    """Admission that takes the tokens of the issuer."""
    draining = Draining()
    oidc = OidcSettings(
        **{"issuer": issuer.url, "audience": AUDIENCE, "default_role": "user", **settings}
    )
    async with running(
        MemoryStore(draining),
        draining,
        gate=lambda keyring, verifiers: Gate(keyring, verifiers, failures=PATIENT),
        oidc=oidc,
    ) as started:
        yield started


@pytest.fixture
def issuer() -> Any:
    with Issuer() as playing:
        playing.add_key("one")
        yield playing


async def who(admission: Admission, token: str) -> Any:
    """Return caller and roles of a token, or the reason why there are none."""
    caller = await admission.bearer(token)
    try:
        answer = await caller(pb.IssueTokenRequest(), retry=False)
    except DomainError as error:
        return error.reason
    return answer.caller, list(answer.roles)


async def test_a_token_of_the_issuer_opens_what_its_claims_mean(issuer: Issuer) -> None:
    async with trusting(
        issuer,
        roles_claim="realm.groups",
        roles={"ops": "operator", "leads": "project-admin"},
        administers_claim="leads_of",
    ) as admission:
        ann = issuer.token("one", realm={"groups": ["ops", "others"]})
        lead = issuer.token("one", sub="Lea", realm={"groups": "leads"}, leads_of=["x"])
        assert await who(admission, ann) == ("oidc:ann", [pb.ROLE_OPERATOR])
        assert await who(admission, lead) == ("oidc:Lea", [pb.ROLE_PROJECT_ADMIN])
        assert await who(admission, issuer.token("one")) == ("oidc:ann", [pb.ROLE_MEMBER])
        lease = await (await admission.bearer(issuer.token("one"))).create(a_lease())
        assert lease.owner == "oidc:ann"


async def test_projects_of_the_claim_limit_the_caller(issuer: Issuer) -> None:
    async with trusting(issuer, projects_claim="projects") as admission:
        caller = await admission.bearer(issuer.token("one", projects=["x"]))
        assert (await caller.create(a_lease(project="x"))).project == "x"
        with pytest.raises(DomainError) as caught:
            await caller.create(a_lease(project="y"))
        assert caught.value.reason == "SCOPE_FORBIDDEN"
        assert await who(admission, issuer.token("one")) == "TOKEN_INVALID"


async def test_new_keys_are_found_when_first_seen_and_old_ones_forgotten(issuer: Issuer) -> None:
    async with trusting(issuer) as admission:
        await admission.refresh_keys()
        first = issuer.token("one")
        assert await who(admission, first) == ("oidc:ann", [pb.ROLE_MEMBER])
        [issuers] = [keys for keys in admission.key_sets if "one" in keys._keys]
        issuers._gap_s = 0.0

        issuer.add_key("two")
        assert await who(admission, issuer.token("two")) == ("oidc:ann", [pb.ROLE_MEMBER])
        del issuer.keys["one"]
        await admission.refresh_keys()
        assert await who(admission, first) == "TOKEN_INVALID"


async def test_keys_known_go_on_while_the_issuer_is_away(issuer: Issuer) -> None:
    async with trusting(issuer) as admission:
        await admission.refresh_keys()
        issuer.away = True
        await admission.refresh_keys()
        assert await who(admission, issuer.token("one")) == ("oidc:ann", [pb.ROLE_MEMBER])
        issuer.add_key("two")
        assert await who(admission, issuer.token("two")) == "TOKEN_KEYS_UNAVAILABLE"


async def test_made_up_key_ids_cost_the_issuer_one_question(issuer: Issuer) -> None:
    async with trusting(issuer) as admission:
        await admission.refresh_keys()
        issuer.asked.clear()
        stranger = Issuer().add_key("x")
        for number in range(10):
            token = issuer.token(f"made-up-{number}", key=stranger)
            assert await who(admission, token) == "TOKEN_INVALID"
        # The keys were fetched a moment ago; within the gap nobody is asked again.
        assert issuer.asked == []


async def test_a_discovery_document_of_another_issuer_is_not_believed(issuer: Issuer) -> None:
    for wrong in ({"issuer": "https://evil.example"}, {"jwks_uri": "file:///etc/passwd"}):
        for name, value in wrong.items():
            setattr(issuer, name, value)
        async with trusting(issuer) as admission:
            assert await who(admission, issuer.token("one")) == "TOKEN_KEYS_UNAVAILABLE"
        issuer.issuer = issuer.jwks_uri = None


def _b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


async def test_no_forged_or_foreign_token_opens_anything(issuer: Issuer) -> None:
    now = json.loads(base64.urlsafe_b64decode(issuer.token("one").split(".")[1] + "=="))["iat"]
    _, body, signature = issuer.token("one").split(".")
    public = issuer.keys["one"].public_key()
    pem = public.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    confused = f"{_b64(json.dumps({'alg': 'HS256', 'kid': 'one'}).encode())}.{body}"
    confused += f".{_b64(hmac.new(pem, confused.encode(), hashlib.sha256).digest())}"
    none = f"{_b64(json.dumps({'alg': 'none', 'kid': 'one'}).encode())}.{body}."
    forged = {
        "alg none": none,
        "HS256 with the public key": confused,
        "another algorithm of the same key": issuer.token("one", alg="PS256"),
        "an algorithm not in the list": issuer.token("one", alg="RS512"),
        "a stranger's key": issuer.token("one", key=Issuer().add_key("x")),
        "another audience": issuer.token("one", aud="other"),
        "no audience": issuer.token("one", aud=None),
        "no expiry": issuer.token("one", exp=None),
        "not before": issuer.token("one", nbf=now + 300),
        "kid as a path": issuer.token("../one", key=issuer.keys["one"]),
        "no caller": issuer.token("one", sub=None),
        "caller with a line break": issuer.token("one", sub="ann\neve"),
        "caller too long": issuer.token("one", sub="a" * 64),
        "roles that are no texts": issuer.token("one", roles=[{"a": 1}]),
        "signature of another": f"{body}.{body}.{signature}",
    }
    async with trusting(issuer) as admission:
        found = {what: await who(admission, token) for what, token in forged.items()}
        late = await who(admission, issuer.token("one", exp=now - 60))
        skewed = await who(admission, issuer.token("one", exp=now - 5, iat=now + 5))
    assert found == dict.fromkeys(forged, "TOKEN_INVALID")
    assert late == "TOKEN_EXPIRED"
    assert skewed == ("oidc:ann", [pb.ROLE_MEMBER])


async def test_nobody_is_let_in_without_a_role(issuer: Issuer) -> None:
    async with trusting(issuer, default_role="", roles={"in": "user"}) as admission:
        assert await who(admission, issuer.token("one")) == "TOKEN_INVALID"
        assert await who(admission, issuer.token("one", roles=["in"])) == (
            "oidc:ann",
            [pb.ROLE_MEMBER],
        )


@pytest.mark.parametrize(
    "wrong",
    [
        {"issuer": "http://issuer.example"},
        {"algorithms": ["HS256"]},
        {"algorithms": ["none"]},
        {"roles": {"x": "service"}},
        {"default_role": "project-admin"},
    ],
)
def test_settings_that_would_open_too_much_are_refused(wrong: dict[str, Any]) -> None:
    right = {"issuer": "https://issuer.example", "audience": "tenure"}
    OidcSettings(**right)
    with pytest.raises(ValidationError):
        OidcSettings(**{**right, **wrong})


async def test_other_calls_are_refused_by_role_as_for_anybody(issuer: Issuer) -> None:
    async with trusting(issuer) as admission:
        caller = await admission.bearer(issuer.token("one"))
        with pytest.raises(DomainError) as caught:
            await caller(calls.VerifyUsageRequest())
    assert caught.value.reason == "METHOD_FORBIDDEN"
