"""The trail: a line when work begins and one when nothing of it is left, for whoever checks.

Lines are appended with one write each, so those of several processes never mix. The times of a
start line are from before the work existed, those of an end line from after the last process of its
tree was gone: two intervals of one lease that overlap are two runs at once. Between them stand
`suspend` lines, from after everything stood still, and `resume` lines, from before anything moved.
A `wake` is what a suspended process does only to hear that it is to end.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from tenure_agent.guardian.bootclock import boot_ns, wall_ns


class Moment(NamedTuple):
    """One instant on both clocks."""

    boot_ns: int
    wall_ns: int


def now() -> Moment:
    """Return the present instant."""
    return Moment(boot_ns(), wall_ns())


class Trail(NamedTuple):
    """Where lines go, and what they say of the run. None of the words needs escaping in JSON."""

    file: str
    lease: str
    attempt: int
    rank: int
    node: str

    def append(self, event: str, pid: int, moment: Moment, exit_code: int | None = None) -> None:
        """Append one line; `event` is `start`, `suspend`, `resume`, `wake` or `end`."""
        code = "" if exit_code is None else f', "exit_code": {exit_code}'
        line = (
            f'{{"event": "{event}", "lease": "{self.lease}", "attempt": {self.attempt}, '
            f'"rank": {self.rank}, "node": "{self.node}", "pid": {pid}, '
            f'"boot_ns": {moment.boot_ns}, "wall_ns": {moment.wall_ns}{code}}}\n'
        )
        descriptor = os.open(self.file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)

    def is_open(self) -> bool:
        """Say whether the trail tells the start of this run and not its end. Reads all of it."""
        run = f'"lease": "{self.lease}", "attempt": {self.attempt}, "rank": {self.rank}, '
        last = ""
        try:
            with open(self.file, encoding="utf-8") as file:
                for line in file:
                    if run in line:
                        last = line
        except FileNotFoundError:
            return False
        return bool(last) and not last.startswith('{"event": "end"')
