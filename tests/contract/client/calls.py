"""Functions that the executor's tests run on nodes."""

from __future__ import annotations

import os
import time


class Odd(Exception):
    """Raised on a node, met by the caller."""


def where(value: int) -> tuple[int, str, str]:
    """Return something, and where it ran."""
    return value * value, os.environ["TENURE_LEASE"], os.environ["TENURE_NODE"]


def fail(text: str) -> None:
    raise Odd(text)


def chatter(size: int) -> bytes:
    """Print marks that look like an outcome, then return much."""
    print("--- tenure outcome 3\nabc ---")
    return b"x" * size


def sleep(seconds: float) -> None:
    time.sleep(seconds)


def unpicklable() -> object:
    return lambda: None


def die() -> None:
    os._exit(3)


def environment(name: str) -> str | None:
    return os.environ.get(name)
