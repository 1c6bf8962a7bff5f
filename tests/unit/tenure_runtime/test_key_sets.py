"""How often an issuer is asked for its keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import jwt
import pytest

from tenure_core.errors import Unavailable
from tenure_runtime.rpc.key_sets import AWAY_GAP_S, GAP_S, KeySet

KEY = cast("jwt.PyJWK", object())


class Issuer:
    """Is away until it has keys."""

    def __init__(self) -> None:
        self.keys: Mapping[str, Any] = {}
        self.asked = 0
        self.clock_s = 0.0

    async def fetch(self) -> Mapping[str, jwt.PyJWK]:
        self.asked += 1
        if not self.keys:
            raise Unavailable("AWAY", "The issuer is away.")
        return self.keys


@pytest.fixture
def issuer() -> Issuer:
    return Issuer()


@pytest.fixture
def keys(issuer: Issuer) -> KeySet:
    return KeySet(issuer.fetch, monotonic_s=lambda: issuer.clock_s)


async def test_an_issuer_that_was_away_is_asked_again_soon(issuer: Issuer, keys: KeySet) -> None:
    """Services start beside admission: a token that comes seconds later must be right."""
    await keys.run_once()
    with pytest.raises(Unavailable) as refused:
        await keys.find("k1")
    assert (refused.value.reason, issuer.asked) == ("TOKEN_KEYS_UNAVAILABLE", 1)

    issuer.keys = {"k1": KEY}
    issuer.clock_s += AWAY_GAP_S
    assert await keys.find("k1") is KEY


async def test_made_up_ids_cost_an_issuer_that_is_there_a_question_each_gap(
    issuer: Issuer, keys: KeySet
) -> None:
    issuer.keys = {"k1": KEY}
    await keys.run_once()
    for _ in range(100):
        issuer.clock_s += GAP_S / 10
        assert await keys.find("made-up") is None
    assert issuer.asked == 11
