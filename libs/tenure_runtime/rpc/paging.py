"""Pages of a list: sizes, and opaque tokens bound to the arguments they came with.

Decides the form of page tokens. How a list is ordered and what its cursor holds is left to the
store that reads it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Sequence
from typing import Final

from tenure_core.errors import Invalid, Violation

PAGE_SIZE_DEFAULT: Final = 50
PAGE_SIZE_MAX: Final = 1_000

Cursor = Sequence[str | int]


def page_size(asked: int, *, default: int = PAGE_SIZE_DEFAULT, maximum: int = PAGE_SIZE_MAX) -> int:
    """Return how many items to list: the default for 0, silently capped at the maximum.

    Raises Invalid for a negative number.
    """
    if asked < 0:
        raise Invalid([Violation("page_size", "OUT_OF_RANGE", "must not be negative")])
    return min(asked or default, maximum)


def encode_page_token(cursor: Cursor, arguments: bytes) -> str:
    """Return the token after `cursor` for a list called with `arguments`.

    `arguments` are the bytes of the request with page_size and page_token cleared, serialized
    deterministically; the token holds a digest of them.
    """
    text = json.dumps([_digest(arguments), list(cursor)], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode_page_token(token: str, arguments: bytes) -> list[str | int] | None:
    """Return the cursor in `token`, None for the first page ("").

    Raises Invalid PAGE_TOKEN_INVALID for what is no token, PAGE_TOKEN_MISMATCH for one that came
    with other arguments.
    """
    if not token:
        return None
    try:
        padded = token + "=" * (-len(token) % 4)
        digest, cursor = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        sound = isinstance(cursor, list) and all(type(part) in (str, int) for part in cursor)
    except (ValueError, TypeError, binascii.Error, RecursionError):
        sound = False
    if not sound:
        raise _invalid("PAGE_TOKEN_INVALID", "is not a token that a list returned")
    if digest != _digest(arguments):
        raise _invalid(
            "PAGE_TOKEN_MISMATCH", "came with other arguments; list again from the first page"
        )
    return list(cursor)


def _invalid(reason: str, description: str) -> Invalid:
    return Invalid([Violation("page_token", reason, description)], reason)


def _digest(arguments: bytes) -> str:
    return hashlib.sha256(arguments).hexdigest()[:16]
