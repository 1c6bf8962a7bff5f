"""How etcd's endpoints are written."""

from __future__ import annotations

import pytest

from tenure_runtime.election.etcd_client import prefix_end
from tenure_runtime.election.etcd_connection import EtcdSettings


@pytest.mark.parametrize("endpoint", ["etcd-0:2379", "https://10.0.0.1:2379", "http://[::1]:2379"])
def test_endpoints_may_carry_a_scheme(endpoint: str) -> None:
    assert EtcdSettings((endpoint,)).endpoints == (endpoint,)


@pytest.mark.parametrize(
    "endpoints", [(), ("etcd",), ("ftp://etcd:2379",), ("etcd:2379/x",), ("",)]
)
def test_what_is_no_endpoint_is_refused(endpoints: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="endpoint"):
        EtcdSettings(endpoints)


def test_a_password_is_not_shown() -> None:
    assert "secret" not in repr(EtcdSettings(("etcd:2379",), user="u", password="secret"))


@pytest.mark.parametrize(
    ("prefix", "end"),
    [(b"a/", b"a0"), (b"a\xff", b"b"), (b"\xff\xff", b"\0"), (b"", b"\0")],
)
def test_the_end_of_a_prefix_is_the_first_key_after_it(prefix: bytes, end: bytes) -> None:
    assert prefix_end(prefix) == end
