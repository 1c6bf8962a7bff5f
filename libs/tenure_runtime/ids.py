"""Names that no one else has made: request ids, lease ids, incident ids.

Decides their alphabet and length. Tests pass `random.Random(seed)` for names that repeat.
"""

from __future__ import annotations

import random
import uuid
from typing import Final

# Lower case without the letters that people confuse (0/o, 1/l/i) and without vowels, so that no
# word appears by chance: 28 letters, 12 of them carry 57 bits.
_ALPHABET: Final = "23456789bcdfghjkmnpqrstvwxyz"


class RandomIds:
    """Makes ids from the system's randomness, or from the generator given."""

    def __init__(self, rng: random.Random | None = None) -> None:
        self._rng = rng or random.SystemRandom()

    def request_id(self) -> str:
        """Return a UUID4, as every changing call carries one."""
        return str(uuid.UUID(int=self._rng.getrandbits(128), version=4))

    def short(self, length: int = 12) -> str:
        """Return a short, URL-safe id of `length` letters (12 carry 57 bits)."""
        assert length > 0
        return "".join(self._rng.choices(_ALPHABET, k=length))

    def lease_id(self) -> str:
        """Return the id of a new lease, for example `k7p2xw9dqh4m`."""
        return self.short(12)
