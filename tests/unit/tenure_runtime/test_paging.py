"""Page sizes and tokens."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure_core.errors import Invalid
from tenure_runtime.rpc.paging import decode_page_token, encode_page_token, page_size


@given(cursor=st.lists(st.one_of(st.text(), st.integers(-(2**63), 2**63))), arguments=st.binary())
def test_a_cursor_comes_back_as_it_went(cursor: list[str | int], arguments: bytes) -> None:
    token = encode_page_token(cursor, arguments)
    assert decode_page_token(token, arguments) == cursor
    assert token.isascii()
    assert all(c.isalnum() or c in "-_" for c in token)


def test_a_token_of_other_arguments_is_a_mismatch() -> None:
    token = encode_page_token(["a", 1], b"owner=ann")
    with pytest.raises(Invalid) as caught:
        decode_page_token(token, b"owner=bob")
    assert caught.value.reason == "PAGE_TOKEN_MISMATCH"
    assert caught.value.violations[0].field == "page_token"


@given(token=st.text(min_size=1))
def test_anything_else_is_no_token(token: str) -> None:
    with pytest.raises(Invalid) as caught:
        decode_page_token(token, b"")
    assert caught.value.reason == "PAGE_TOKEN_INVALID"


@pytest.mark.parametrize("token", ["W10", "bnVsbA", "WyJhIixudWxsXQ", "WyJhIix7fV0", "eyJhIjoxfQ"])
def test_json_of_another_form_is_no_token(token: str) -> None:
    with pytest.raises(Invalid) as caught:
        decode_page_token(token, b"")
    assert caught.value.reason == "PAGE_TOKEN_INVALID"


def test_the_first_page_has_no_token() -> None:
    assert decode_page_token("", b"anything") is None


@pytest.mark.parametrize(("asked", "size"), [(0, 50), (1, 1), (1_000, 1_000), (5_000, 1_000)])
def test_page_sizes_have_a_default_and_a_silent_cap(asked: int, size: int) -> None:
    assert page_size(asked) == size


def test_a_negative_page_size_is_invalid() -> None:
    with pytest.raises(Invalid):
        page_size(-1)
