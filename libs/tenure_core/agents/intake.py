"""What an agent may send on its stream: beats in sequence, at a bounded rate.

Decides when a beat goes backward and when a sender floods. What happens then is left to the stream.
"""

from __future__ import annotations

from dataclasses import dataclass

from tenure_core.errors import Exhausted, WrongState
from tenure_core.timebase import Millis


@dataclass(frozen=True, slots=True)
class IntakeLimits:
    """How much one stream may send: a burst at once, and a steady rate a second.

    Weights are in bytes; each message weighs at least `message_weight`, so that many small ones
    count too. A message of more than `message_bytes_max` is refused whatever the rate.
    """

    burst_bytes: int = 8 * 1024 * 1024
    bytes_per_s: int = 1024 * 1024
    message_weight: int = 4 * 1024
    message_bytes_max: int = 1024 * 1024


class Intake:
    """The running account of one stream: a leaky bucket, and the last beat's sequence."""

    __slots__ = ("_at_ms", "_debt", "_limits", "_sequence")

    def __init__(self, limits: IntakeLimits, now_ms: Millis) -> None:
        self._limits = limits
        self._debt = 0.0
        self._at_ms = now_ms
        self._sequence = 0

    def take(self, size_bytes: int, now_ms: Millis) -> None:
        """Count one message.

        Raises Exhausted MESSAGE_TOO_LARGE or FLOODING.
        """
        limits = self._limits
        if size_bytes > limits.message_bytes_max:
            raise Exhausted(
                "MESSAGE_TOO_LARGE",
                f"A message has at most {limits.message_bytes_max} bytes, not {size_bytes}.",
                size=size_bytes,
            )
        leaked = (now_ms - self._at_ms) * limits.bytes_per_s / 1000
        self._debt = max(0.0, self._debt - leaked) + max(size_bytes, limits.message_weight)
        self._at_ms = now_ms
        if self._debt > limits.burst_bytes:
            raise Exhausted(
                "FLOODING",
                "The agent sends more than its stream may carry.",
                retry_after_ms=5_000,
            )

    def beat(self, sequence: int) -> None:
        """Note a beat. Raises WrongState SEQUENCE_BACKWARD unless it is later than the last."""
        if sequence <= self._sequence:
            raise WrongState(
                "SEQUENCE_BACKWARD",
                f"Beat {sequence} came after beat {self._sequence}.",
                sequence=sequence,
                last=self._sequence,
            )
        self._sequence = sequence
