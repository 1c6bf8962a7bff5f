"""How many waiting leases get a promised start, and whether others may pass them meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self


@dataclass(frozen=True, slots=True)
class Backfilling:
    """The number of promises that may stand at once, and whether the queue may be passed at all.

    `promises_max` counts the stored future bookings of best-effort leases; None is no limit.
    With `passing` off, the walk through the queue stops at the first lease that cannot start.

    - `OFF`: strict first come, first served; no promise.
    - `EASY`: one promise, to the head of the queue (Lifka 1995).
    - `intermediate(n)`: n promises.
    - `CONSERVATIVE`: a promise to every lease.
    """

    promises_max: int | None
    passing: bool = True

    OFF: ClassVar[Self]
    EASY: ClassVar[Self]
    CONSERVATIVE: ClassVar[Self]

    def __post_init__(self) -> None:
        if self.promises_max is not None and self.promises_max < 0:
            raise ValueError(f"promises are counted from 0, not {self.promises_max}")

    @classmethod
    def intermediate(cls, promises: int) -> Self:
        """Return backfilling with `promises` promised starts; 1 is EASY."""
        return cls(promises_max=promises)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `off`, `easy`, `conservative` or `intermediate:N` as people type it."""
        name, colon, number = text.strip().lower().partition(":")
        if name == "intermediate" and colon and number.isdigit():
            return cls.intermediate(int(number))
        fixed = {
            "off": cls.OFF, "none": cls.OFF, "fcfs": cls.OFF,
            "easy": cls.EASY, "aggressive": cls.EASY,
            "conservative": cls.CONSERVATIVE, "cons": cls.CONSERVATIVE,
        }  # fmt: skip
        if colon or name not in fixed:
            raise ValueError(f"{text!r} is none of off, easy, intermediate:N, conservative")
        return fixed[name]

    def __str__(self) -> str:
        if not self.passing:
            return "off"
        if self.promises_max is None:
            return "conservative"
        return "easy" if self.promises_max == 1 else f"intermediate:{self.promises_max}"


Backfilling.OFF = Backfilling(promises_max=0, passing=False)
Backfilling.EASY = Backfilling(promises_max=1)
Backfilling.CONSERVATIVE = Backfilling(promises_max=None)
