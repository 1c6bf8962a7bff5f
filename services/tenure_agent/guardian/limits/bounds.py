"""How much work may use, as a guardian is told it, and what every kind of limit can do."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Place(NamedTuple):
    """Where groups are made: a controller (empty for cgroup v2, which has one tree for all).

    `parent` is the folder below which they are made, `home` the folder of the group in which the
    guardian itself is, before and afterwards.
    """

    controller: str
    parent: str
    home: str


class Bounds(NamedTuple):
    """What the work of one allocation may use. An amount of 0 is not limited.

    `kind` is `cgroup1`, `cgroup2`, `rlimit` or `none`; `name` that of its group; `user` the id of
    the user to run as, then of the group, then of further groups; empty: as the agent. `ready` says
    that the group is there with these very limits, from a lease before.
    """

    kind: str = "none"
    name: str = ""
    places: tuple[Place, ...] = ()
    cpu_millis: int = 0
    memory_bytes: int = 0
    pids: int = 0
    user: tuple[int, ...] = ()
    mount_tmp: bool = False
    ready: bool = False


def unpack(words: list[object]) -> Bounds:
    """Return bounds that travelled as JSON, where tuples became lists."""
    bounds = Bounds(*words)  # type: ignore[arg-type]  # what `pack` wrote
    places = tuple(Place(*each) for each in bounds.places)
    return bounds._replace(places=places, user=tuple(bounds.user))


class Group(Protocol):
    """One allocation's limits. Only its guardian uses it, but `empty` and `remove`.

    All but `exceeded` and `freeze` raise OSError where the system refuses.
    """

    def make(self) -> None:
        """Make it with its limits; nothing is in it yet."""
        ...

    def enter(self) -> None:
        """Have what this process starts next be born within the limits; make what is not there."""
        ...

    def leave(self, born: int) -> None:
        """Undo `enter` for this process; `born` is the process started meanwhile, 0 if none."""
        ...

    def freeze(self) -> bool:
        """Halt everything in it; say whether that is done. False: it cannot be, signal instead."""
        ...

    def thaw(self) -> None:
        """Let what `freeze` halted go on."""
        ...

    def kill(self) -> None:
        """Send SIGKILL to everything in it at once, as far as it can; does not wait."""
        ...

    def exceeded(self) -> bool:
        """Say whether work was ended, or must be, because it went beyond its memory."""
        ...

    def clean(self) -> bool:
        """Say of a group that nobody is in whether it is as good as new for other work."""
        ...

    def empty(self) -> None:
        """Kill what is in it until nothing is; for work whose guardian is gone."""
        ...

    def discard(self) -> None:
        """Remove it if nobody is in it; does not wait and raises nothing."""
        ...

    def remove(self) -> None:
        """Remove it, empty as it is now; one that is not there any more is removed."""
        ...
