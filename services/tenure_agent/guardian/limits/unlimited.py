"""No limits: what is neither asked for nor possible."""

from __future__ import annotations


class Unlimited:
    """`Group` that holds nothing; signals do what a group would."""

    def make(self) -> None:
        """Nothing is made."""

    def enter(self) -> None:
        """Nothing is entered."""

    def leave(self, born: int) -> None:
        """Nothing is left."""

    def freeze(self) -> bool:
        """Leave it to signals."""
        return False

    def thaw(self) -> None:
        """Leave it to signals."""

    def kill(self) -> None:
        """Leave it to signals."""

    def exceeded(self) -> bool:
        """Nothing can be exceeded."""
        return False

    def clean(self) -> bool:
        """Nothing is kept."""
        return True

    def empty(self) -> None:
        """Nothing is in it."""

    def discard(self) -> None:
        """Nothing is there."""

    def remove(self) -> None:
        """Nothing is there."""
