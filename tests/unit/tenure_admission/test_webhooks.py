"""Where webhooks may lead, and what is no URL for one."""

from __future__ import annotations

import hashlib
import hmac

import pytest

from tenure_admission.notices.addresses import may_be_called
from tenure_admission.notices.values import pause_ms
from tenure_admission.notices.webhook import UrlRefused, parse_url, signature


@pytest.mark.parametrize(
    ("address", "public", "allowed"),
    [
        ("93.184.216.34", True, True),
        ("2606:2800:220:1::1", True, True),
        ("127.0.0.1", False, True),
        ("10.1.2.3", False, True),
        ("192.168.0.1", False, True),
        ("100.64.0.1", False, True),
        ("::1", False, True),
        ("fd00::1", False, True),
        ("::ffff:127.0.0.1", False, True),
        ("64:ff9b::a00:1", False, True),
        ("2002:a00:1::", False, True),
        ("64:ff9b::5db8:d822", True, True),
        ("169.254.169.254", False, False),
        ("::ffff:169.254.169.254", False, False),
        ("64:ff9b::a9fe:a9fe", False, False),
        ("fe80::1%eth0", False, False),
        ("0.0.0.0", False, False),
        ("::", False, False),
        ("224.0.0.1", False, False),
        ("255.255.255.255", False, False),
    ],
)
def test_only_public_addresses_are_called_and_some_never(
    address: str, public: bool, allowed: bool
) -> None:
    assert may_be_called(address, private=False) is public
    assert may_be_called(address, private=True) is allowed


@pytest.mark.parametrize(
    "text",
    [
        "ftp://example.org/",
        "example.org/hook",
        "http://",
        "http://example.org:0/",
        "http://example.org:99999/",
        "http://ann:pw@example.org/",
        "http://example.org/a b",
        "http://example.org/\r\nX-Header: 1",
        "http://exämple.org/",
        "http://[::1/",
    ],
)
def test_what_is_no_url_to_post_to_is_refused(text: str) -> None:
    with pytest.raises(UrlRefused):
        parse_url(text)


def test_a_signature_covers_the_time_and_the_body() -> None:
    digest = hmac.new(b"secret", b'17.{"a":1}', hashlib.sha256).hexdigest()
    assert signature("secret", 17, b'{"a":1}') == f"t=17,v1={digest}"


def test_pauses_double_up_to_an_hour() -> None:
    assert [pause_ms(n) for n in (1, 2, 3, 10)] == [5_000, 10_000, 20_000, 2_560_000]
    assert pause_ms(20) == 3_600_000
