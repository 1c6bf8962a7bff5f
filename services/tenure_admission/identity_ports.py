"""What the use cases of identity need of the outside: the books of API keys and of signing keys."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tenure_admission.records import RequestKey
from tenure_core.errors import NotFound, WrongState
from tenure_core.identity.api_keys import ApiKey
from tenure_core.timebase import Millis


@dataclass(frozen=True, slots=True)
class KeyListing:
    """Which API keys to list, by id after `after`.

    `caller` None is everybody's. Keys that open nothing at `usable_at` are left out; None: none is.
    """

    limit: int
    after: str = ""
    caller: str | None = None
    usable_at: Millis | None = None


class KeyBook(Protocol):
    """API keys. A repeat of a request that made a key finds the key, and no secret."""

    async def create(self, key: ApiKey, request: RequestKey | None) -> None:
        """Store a key. Raises WrongState SECRET_SHOWN_ONCE, Invalid REQUEST_ID_REUSED."""
        ...

    async def rotate(
        self,
        key_id: str,
        decide: Callable[[ApiKey], tuple[ApiKey, ApiKey]],
        request: RequestKey | None,
    ) -> tuple[ApiKey, ApiKey]:
        """Store a key as `decide` retires it, and its successor; return both.

        Raises NotFound KEY_NOT_FOUND, and as `create`.
        """
        ...

    async def change(
        self, key_id: str, decide: Callable[[ApiKey], ApiKey], request: RequestKey | None
    ) -> ApiKey:
        """Store a key as `decide` changes it and return it.

        Raises NotFound KEY_NOT_FOUND, Invalid REQUEST_ID_REUSED.
        """
        ...

    async def get(self, key_id: str) -> ApiKey | None:
        """Return a key, None when there is none of that id."""
        ...

    async def page(self, listing: KeyListing) -> list[ApiKey]:
        """Return keys by id."""
        ...


class SigningKeyBook(Protocol):
    """The public halves of the keys by which replicas sign."""

    async def publish(self, key_id: str, public_jwk: str, expires: Millis, now: Millis) -> None:
        """Store a key, or when it expires if it is known; forget those that have expired."""
        ...

    async def published(self, now: Millis) -> list[str]:
        """Return the JWKs that have not expired, in the order of their ids."""
        ...


def key_not_found(key_id: str) -> NotFound:
    """Return the error of a key that does not exist, or that the caller may not see."""
    name = f"apiKeys/{key_id}"
    return NotFound("KEY_NOT_FOUND", f"{name} does not exist.", name=name)


def secret_shown(key_id: str) -> WrongState:
    """Return the answer to a repeat of a request that made a key."""
    name = f"apiKeys/{key_id}"
    text = f"{name} was made by the first such request; its secret was shown then and is not kept."
    return WrongState("SECRET_SHOWN_ONCE", text, name=name)
