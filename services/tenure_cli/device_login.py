"""Signs in at an OIDC issuer by the device-code flow (RFC 8628): a code is typed in a browser."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tenure_core.errors import Unauthenticated, Unavailable

TIMEOUT_S: Final = 10.0
ANSWER_BYTES_MAX: Final = 1024 * 1024
_GRANT: Final = "urn:ietf:params:oauth:grant-type:device_code"
_SLOWER_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Invitation:
    """Where to go and what to type there."""

    address: str
    code: str


def sign_in(
    issuer: str,
    client_id: str,
    invite: Callable[[Invitation], None],
    *,
    sleep: Callable[[float], None] = time.sleep,
    monotonic_s: Callable[[], float] = time.monotonic,
) -> str:
    """Return an ID token once somebody has typed the code.

    Raises Unauthenticated SIGN_IN_REFUSED, Unavailable ISSUER_UNAVAILABLE.
    """
    found = _ask(f"{issuer.rstrip('/')}/.well-known/openid-configuration", None)[1]
    if found.get("issuer") != issuer:
        raise _refused("the discovery document is of another issuer")
    form = {"client_id": client_id, "scope": "openid profile email"}
    status, device = _ask(str(found.get("device_authorization_endpoint")), form)
    if status != 200:
        raise _refused(str(device.get("error", status)))
    shown = device.get("verification_uri_complete") or device.get("verification_uri")
    invite(Invitation(str(shown), str(device.get("user_code"))))
    wait_s = float(device.get("interval", _SLOWER_S))
    end_s = monotonic_s() + float(device.get("expires_in", 600))
    form = {"client_id": client_id, "grant_type": _GRANT, "device_code": device["device_code"]}
    while monotonic_s() < end_s:
        sleep(wait_s)
        status, answer = _ask(str(found.get("token_endpoint")), form)
        if status == 200 and isinstance(answer.get("id_token"), str):
            token: str = answer["id_token"]
            return token
        error = answer.get("error")
        if error == "slow_down":
            wait_s += _SLOWER_S
        elif error != "authorization_pending":
            raise _refused(str(error or "the issuer gave no ID token"))
    raise _refused("nobody typed the code in time")


def _refused(why: str) -> Unauthenticated:
    return Unauthenticated("SIGN_IN_REFUSED", f"The issuer did not sign you in: {why}.")


def _ask(url: str, form: Mapping[str, str] | None) -> tuple[int, dict[str, Any]]:
    """Return status and JSON of an answer; a refusal (4xx) is one too."""
    if not url.startswith(("https://", "http://127.0.0.1:", "http://localhost:")):
        raise _refused(f"{url} is not https")
    data = None if form is None else urllib.parse.urlencode(form).encode()
    try:
        try:
            with urllib.request.urlopen(url, data, TIMEOUT_S) as answer:  # noqa: S310 - checked
                status, body = answer.status, answer.read(ANSWER_BYTES_MAX)
        except urllib.error.HTTPError as refusal:
            if refusal.code >= 500:
                raise
            status, body = refusal.code, refusal.read(ANSWER_BYTES_MAX)
        found = json.loads(body)
    except (OSError, ValueError) as error:
        raise Unavailable("ISSUER_UNAVAILABLE", f"{url} does not answer: {error}") from None
    return status, found if isinstance(found, dict) else {}
