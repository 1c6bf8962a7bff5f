"""What stands around the work of one allocation: its limits, its user, its private tmp.

Decides the order: everything is made in the warm process, the work is born within it, and all of it
is gone before the end is told. Which limits there are is the agent's to say (`Bounds`).
"""

from __future__ import annotations

import os
import signal
from collections import deque
from contextlib import ExitStack, suppress

from tenure_agent.guardian import tree
from tenure_agent.guardian.bootclock import boot_ms
from tenure_agent.guardian.folder import WORK
from tenure_agent.guardian.launch import launch
from tenure_agent.guardian.limits.bounds import Group
from tenure_agent.guardian.limits.kinds import group_of
from tenure_agent.guardian.mounts import covered
from tenure_agent.guardian.spec import Spec
from tenure_agent.guardian.user import real_ids

TMP = "tmp"
_LOOK_EVERY_MS = 500
# Those of this process (the warm one, or one that serves leases in turn), for its end.
_made: deque[Group] = deque(maxlen=256)


def discard_idle() -> None:
    """Remove the groups made by this process that nobody is in; it has no more use for them.

    A guardian that has yet to enter one makes it anew.
    """
    for group in _made:
        group.discard()


def forget_made() -> None:
    """Leave the groups that the warm process made to it; for a fork of it."""
    _made.clear()


class Confinement:
    """Made by `Guardian`, in the warm process; raises OSError when the system refuses a part."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._user = spec.bounds.user
        self._tmp = f"{spec.folder}/{TMP}"
        self._group = group_of(spec.bounds)
        self._frozen = False
        self._look_at_ms = 0
        os.mkdir(f"{spec.folder}/{WORK}", mode=0o700)
        os.mkdir(self._tmp, mode=0o700)
        if self._user:
            self._give_to_user()
        if self._group is not None and not spec.bounds.ready:
            self._group.make()
            _made.append(self._group)

    def _give_to_user(self) -> None:
        """Give the work's folders to its user, who may pass through ours but not look around."""
        folder = self._spec.folder
        os.chmod(folder, 0o711)  # noqa: S103
        for name in (WORK, TMP):
            os.chown(f"{folder}/{name}", self._user[0], self._user[1])

    def launch(self, program: str, output: int) -> int:
        """Start the work within all of it; return its process id.

        Raises OSError; then nothing of it runs.
        """
        if self._group is None and not self._user and not self._spec.bounds.mount_tmp:
            return launch(program, self._spec.command, self._spec.environment, output)
        try:
            born = self._born(program, output)
        except OSError:
            tree.kill_all()
            raise
        if self._group is not None:
            self._look_at_ms = boot_ms() + _LOOK_EVERY_MS
        return born

    def _born(self, program: str, output: int) -> int:
        if not self._user and not self._spec.bounds.mount_tmp:
            return self._spawn(program, output)
        with ExitStack() as stack:
            if self._spec.bounds.mount_tmp:
                stack.enter_context(covered(self._tmp))
            if self._user:
                stack.enter_context(real_ids(self._user))
            return self._spawn(program, output)

    def _spawn(self, program: str, output: int) -> int:
        command, environment, born = self._spec.command, self._spec.environment, 0
        if self._group is None:
            return launch(program, command, environment, output, as_real_user=bool(self._user))
        self._group.enter()
        try:
            born = launch(program, command, environment, output, as_real_user=bool(self._user))
        finally:
            self._group.leave(born)
        return born

    def pause(self) -> None:
        """Halt all of the work: by the freezer, else by SIGSTOP to each."""
        self._frozen = self._group is not None and self._group.freeze()
        if not self._frozen:
            tree.pause()

    def resume(self) -> None:
        """Let all of the work go on."""
        if self._frozen and self._group is not None:
            self._frozen = False
            self._group.thaw()
        else:
            tree.signal_all(signal.SIGCONT)

    def kill_all(self) -> dict[int, int]:
        """Kill all of the work to the last; return the wait status of each direct child."""
        if self._group is not None:
            # Signals to each do the same, only not at once.
            with suppress(OSError):
                self._group.kill()
        return tree.kill_all()

    def exceeded(self) -> bool:
        """Say whether the work must end for its memory; looks twice a second at most."""
        if self._group is None or boot_ms() < self._look_at_ms:
            return False
        self._look_at_ms = boot_ms() + _LOOK_EVERY_MS
        return self._group.exceeded()

    def was_exceeded(self) -> bool:
        """Say of work that has ended whether it went beyond its memory."""
        return self._group is not None and self._group.exceeded()

    def remove(self, *, lent: bool) -> None:
        """Remove limits and tmp of work that is over; what cannot be is left to the agent.

        A group that was `lent` by an agent which is there still is left for its next work, if it is
        as good as new: making one costs more than all else here.
        """
        group = self._group
        if group is not None and not (lent and not self._frozen and group.clean()):
            with suppress(OSError):
                group.remove()
        try:
            os.rmdir(self._tmp)
        except FileNotFoundError:
            return
        except OSError:
            # Loaded by those only that left something; it follows no link that work may have put.
            import shutil

            shutil.rmtree(self._tmp, ignore_errors=True)
