"""The client's tokens: asked for ahead, kept while the issuer is away, replaced when refused."""

from __future__ import annotations

import asyncio

import pytest

from tenure_core.errors import Unavailable
from tenure_runtime.rpc.token_source import IssuedToken, TokenSource


class Issuer:
    """Issues t1, t2, …, each good for 100 s, by a clock that a test moves."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.issued = 0
        self.away = False

    async def issue(self) -> IssuedToken:
        await asyncio.sleep(0)
        if self.away:
            raise Unavailable("AWAY", "The issuer is away.")
        self.issued += 1
        return IssuedToken(f"t{self.issued}", 100.0)

    def source(self) -> TokenSource:
        return TokenSource(self.issue, monotonic_s=lambda: self.now_s)


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_many_callers_share_one_token() -> None:
    issuer = Issuer()
    source = issuer.source()
    assert await asyncio.gather(*(source.bearer() for _ in range(9))) == ["t1"] * 9


async def test_the_next_token_is_asked_for_ahead_while_the_present_one_serves() -> None:
    issuer = Issuer()
    source = issuer.source()
    await source.bearer()
    issuer.now_s = 69
    assert await source.bearer() == "t1"
    await settled()
    assert issuer.issued == 1
    issuer.now_s = 70
    assert await source.bearer() == "t1"
    await settled()
    assert await source.bearer() == "t2"


async def test_the_present_token_goes_on_to_its_end_while_the_issuer_is_away() -> None:
    issuer = Issuer()
    source = issuer.source()
    await source.bearer()
    issuer.away, issuer.now_s = True, 99
    assert await source.bearer() == "t1"
    await settled()
    assert await source.bearer() == "t1"
    issuer.now_s = 100
    with pytest.raises(Unavailable):
        await source.bearer()
    issuer.away = False
    assert await source.bearer() == "t2"


async def test_a_refused_token_is_replaced_once_for_all_who_showed_it() -> None:
    issuer = Issuer()
    source = issuer.source()
    refused = await source.bearer()
    assert await asyncio.gather(*(source.another(refused) for _ in range(9))) == ["t2"] * 9
