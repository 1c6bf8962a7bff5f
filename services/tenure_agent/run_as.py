"""Which user the work runs as.

Decides who may be named: with root any user that the machine knows, without root only the agent's
own. An agent that cannot do what it is told does not start; work never runs as root instead.
"""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass, field

from tenure_agent.settings import SettingRefused


@dataclass(frozen=True, slots=True)
class RunAs:
    """A user. `ids` are its id, its group's and those of all groups; empty: as the agent is."""

    ids: tuple[int, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    name: str = ""

    @property
    def fact(self) -> str:
        """Return what the agent tells about it: the name, or that it is its own user."""
        return self.name or _own_name()


def run_as(name: str, uid: int | None = None) -> RunAs:
    """Return the user called `name`, or with that number; empty: the agent's own.

    Raises SettingRefused for one that is not known, or that this process may not become.
    """
    if not name:
        return RunAs()
    try:
        entry = pwd.getpwuid(int(name)) if name.isdecimal() else pwd.getpwnam(name)
    except KeyError:
        raise SettingRefused(
            f"TENURE_RUN_AS names {name!r}, whom this machine does not know"
        ) from None
    own = os.geteuid() if uid is None else uid
    if entry.pw_uid == own:
        return RunAs(name=entry.pw_name)
    if own != 0:
        raise SettingRefused(
            f"TENURE_RUN_AS names {name!r}, and only an agent that runs as root can do that"
        )
    groups = os.getgrouplist(entry.pw_name, entry.pw_gid)
    told = {"HOME": entry.pw_dir, "USER": entry.pw_name, "LOGNAME": entry.pw_name}
    return RunAs((entry.pw_uid, entry.pw_gid, *groups), told, entry.pw_name)


def _own_name() -> str:
    uid = os.geteuid()
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
