"""Posts notices to webhooks: signed, to judged addresses only, without following redirects.

A small client of its own: the address that is connected to must be the one that was judged, and
nothing of the answer is wanted but its status.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import re
import socket
import ssl
from collections.abc import Mapping
from typing import Final
from urllib.parse import SplitResult, urlsplit

from tenure_admission.notices.addresses import may_be_called
from tenure_admission.notices.values import Delivery, DeliveryFailed
from tenure_core.timebase import Clock

TIMEOUT_S: Final = 10.0
_STATUS: Final = re.compile(rb"HTTP/1\.[01] (\d{3})( .*)?\r\n")
_LINE_MAX: Final = 4_096
_PORTS: Final = {"http": 80, "https": 443}
_NOT_IN_URL: Final = re.compile(r"[\x00-\x20\x7f-\U0010ffff]")


class UrlRefused(ValueError):
    """A text is no URL that can be posted to; the message says why."""


def parse_url(text: str) -> SplitResult:
    """Return the parts of a webhook's URL. Raises UrlRefused."""
    if _NOT_IN_URL.search(text):
        raise UrlRefused("holds blanks or characters outside ASCII; escape them")
    try:
        url = urlsplit(text)
        known = url.scheme in _PORTS and bool(url.hostname) and url.port != 0
    except ValueError:
        known = False
    if not known:
        raise UrlRefused("is not http://… or https://…")
    if url.username is not None or url.password is not None:
        raise UrlRefused("holds a name or a password; the signature says who posts")
    return url


def body_of(delivery: Delivery) -> bytes:
    """Return what is posted: the same bytes for every attempt."""
    told: Mapping[str, object] = {
        "id": delivery.id,
        "kind": delivery.kind,
        "owner": delivery.owner,
        "created_ms": delivery.created,
        **delivery.facts,
    }
    return json.dumps(told, separators=(",", ":"), sort_keys=True).encode()


def signature(secret: str, at_s: int, body: bytes) -> str:
    """Return the header's value: HMAC-SHA-256 over the seconds, a full stop and the body.

    The time is signed, so that a receiver can refuse what was recorded long ago.
    """
    signed = hmac.new(secret.encode(), f"{at_s}.".encode() + body, hashlib.sha256)
    return f"t={at_s},v1={signed.hexdigest()}"


class Webhook:
    """The way to owners by HTTP. `private` allows addresses that are not public."""

    def __init__(self, clock: Clock, *, private: bool) -> None:
        self._clock = clock
        self._private = private

    async def send(self, delivery: Delivery) -> None:
        """Post a notice; any answer but 2xx is a failure, a redirect too."""
        try:
            url = parse_url(delivery.target)
            async with asyncio.timeout(TIMEOUT_S):
                status = await self._post(url, self._request(url, delivery))
        except UrlRefused as error:
            raise DeliveryFailed(f"the URL {error}", for_good=True) from None
        except TimeoutError:
            raise DeliveryFailed(f"no answer within {TIMEOUT_S:g} s") from None
        except (OSError, ValueError) as error:
            raise DeliveryFailed(str(error) or type(error).__name__) from None
        if not 200 <= status < 300:
            raise DeliveryFailed(f"answered with status {status}")

    def _request(self, url: SplitResult, delivery: Delivery) -> bytes:
        body = body_of(delivery)
        path = (url.path or "/") + (f"?{url.query}" if url.query else "")
        signed = signature(delivery.secret, self._clock.now_ms() // 1_000, body)
        lines = (
            f"POST {path} HTTP/1.1",
            f"Host: {url.netloc}",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
            "User-Agent: tenure",
            f"Tenure-Notice-Id: {delivery.id}",
            f"Tenure-Signature: {signed}",
            "Connection: close",
        )
        return "\r\n".join((*lines, "", "")).encode() + body

    async def _post(self, url: SplitResult, request: bytes) -> int:
        assert url.hostname is not None, "a parsed URL has a name"
        port = url.port or _PORTS[url.scheme]
        secure = url.scheme == "https"
        reader, writer = await asyncio.open_connection(
            await self._judged(url.hostname, port),
            port,
            ssl=ssl.create_default_context() if secure else None,
            server_hostname=url.hostname if secure else None,
            limit=_LINE_MAX,
        )
        try:
            writer.write(request)
            await writer.drain()
            answer = _STATUS.fullmatch(await reader.readline())
        finally:
            writer.close()
        if answer is None:
            raise DeliveryFailed("the answer is not HTTP")
        return int(answer[1])

    async def _judged(self, name: str, port: int) -> str:
        """Return an address of the name that may be called; all of its addresses must be."""
        found = await asyncio.get_running_loop().getaddrinfo(name, port, type=socket.SOCK_STREAM)
        addresses = [str(each[4][0]) for each in found]
        if not all(may_be_called(each, private=self._private) for each in addresses):
            raise DeliveryFailed(f"{name} leads to an address that is not public", for_good=True)
        return addresses[0]
