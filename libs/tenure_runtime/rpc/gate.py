"""The gate of a server: who shows which credential, how often they may fail, how often call.

Decides the order: a keyring key is looked up at once; anything else is handed to the verifiers of
this server until one knows its kind. Whatever is wrong with an API key, the answer and the work are
the same, so that nobody learns which callers exist. A peer that shows wrong credentials runs out of
attempts; from then on only credentials that were right before are looked at for it.
"""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from tenure_core.errors import Exhausted, Unauthenticated
from tenure_core.identity.throttling import Buckets, Rate
from tenure_runtime.rpc.identity import Identity, Keyring, Role, bearer_of
from tenure_runtime.telemetry import metrics

CREDENTIAL_LENGTH_MAX: Final = 8_192
FAILURES: Final = Rate(per_s=1 / 6, burst=20)
"""Wrong credentials of one peer address: twenty at once, ten a minute."""
REMEMBERED_MAX: Final = 4_096
EXPIRED: Final = "TOKEN_EXPIRED"
_UNLIMITED: Final = frozenset({Role.SERVICE, Role.AGENT})


class Verifier(Protocol):
    """Knows one kind of credential."""

    async def identify(self, credential: str) -> Identity | None:
        """Return who shows the credential, None when it is of another kind.

        Raises Unauthenticated, and Unavailable while it cannot be known.
        """
        ...


class Gate:
    """Admits the calls of one server. `monotonic_ms` is for tests."""

    def __init__(
        self,
        keyring: Keyring,
        verifiers: Sequence[Verifier] = (),
        *,
        calls: Rate | None = None,
        failures: Rate = FAILURES,
        monotonic_ms: Callable[[], float] = lambda: time.monotonic() * 1_000,
    ) -> None:
        self._keyring = keyring
        self._verifiers = verifiers
        self._calls = None if calls is None else Buckets(calls)
        self._failures = Buckets(failures)
        self._failed = False
        self._right: OrderedDict[bytes, None] = OrderedDict()
        self._monotonic_ms = monotonic_ms

    async def admit(self, authorization: str | None, peer: str) -> Identity:
        """Return who calls.

        Raises Unauthenticated API_KEY_MISSING, API_KEY_INVALID, TOKEN_INVALID, TOKEN_EXPIRED;
        Exhausted TOO_MANY_FAILURES, RATE_LIMITED; Unavailable of a verifier.
        """
        credential = bearer_of(authorization)
        address = peer.rpartition(":")[0] or peer
        print_ = hashlib.sha256(credential.encode()).digest()
        if self._failed and print_ not in self._right:
            self._check_failures(address)
        try:
            identity = await self._identify(credential)
        except Unauthenticated as error:
            if error.reason != EXPIRED:
                self._failed = True
                self._failures.take(address, self._monotonic_ms())
                metrics.CREDENTIALS_REFUSED.add(1)
            raise
        self._remember(print_)
        self._check_rate(identity)
        return identity

    def is_of_machinery(self, authorization: str) -> bool:
        """Say whether a service or an agent calls, by a key of the keyring; never raises."""
        try:
            identity = self._keyring.identify(bearer_of(authorization))
        except Unauthenticated:
            return False
        return not identity.roles.isdisjoint(_UNLIMITED)

    async def _identify(self, credential: str) -> Identity:
        if len(credential) <= CREDENTIAL_LENGTH_MAX and not credential.startswith("tnr_"):
            for verifier in self._verifiers:
                identity = await verifier.identify(credential)
                if identity is not None:
                    return identity
        return self._keyring.identify(credential[:CREDENTIAL_LENGTH_MAX])

    def _check_failures(self, address: str) -> None:
        wait_ms = self._failures.wait_ms(address, self._monotonic_ms())
        if wait_ms > 0:
            text = "Too many wrong credentials came from this address; try again later."
            raise Exhausted("TOO_MANY_FAILURES", text, retry_after_ms=max(1, round(wait_ms)))

    def _check_rate(self, identity: Identity) -> None:
        if self._calls is None or not identity.roles.isdisjoint(_UNLIMITED):
            return
        wait_ms = self._calls.take(identity.name, self._monotonic_ms())
        if wait_ms > 0:
            raise Exhausted(
                "RATE_LIMITED",
                f"{identity.name} calls more often than it may.",
                retry_after_ms=max(1, round(wait_ms)),
                caller=identity.name,
            )

    def _remember(self, print_: bytes) -> None:
        self._right[print_] = None
        self._right.move_to_end(print_)
        if len(self._right) > REMEMBERED_MAX:
            self._right.popitem(last=False)
