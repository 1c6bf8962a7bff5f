"""Makes the keys of a cluster: who may call, as files for two Secrets.

    python helm/make_keys.py FOLDER --agent NODE… --user NAME…
    kubectl create secret generic tenure-keys --from-file=FOLDER/keys
    kubectl create secret generic tenure-agent-keys --from-file=FOLDER/agent-keys

`keys/` gets keyring.json and <name>.key for the operator, the five services and the users;
`agent-keys/` gets <node>.key. Whatever is there already stays as it is, so that nodes and users can
be added later. The folder is as secret as the keys.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from tenure_runtime.rpc.identity import KeyEntry, Keyring, Role, create_key, write_private

SERVICES: Final = ("admission", "slottable", "scheduler", "registry", "autoscaler")


def wanted(agents: list[str], users: list[str]) -> dict[str, set[Role]]:
    """Return the roles of every name. Raises ValueError for a name with two meanings."""
    roles = {"operator": {Role.OPERATOR, Role.USER}}
    roles |= {service: {Role.SERVICE} for service in SERVICES}
    for names, role in ((agents, Role.AGENT), (users, Role.USER)):
        for name in names:
            if roles.setdefault(name, {role}) != {role}:
                raise ValueError(f"{name} is already the name of {sorted(roles[name])[0]}")
    return roles


def make_keys(folder: Path, agents: list[str], users: list[str]) -> list[str]:
    """Make the keys that are missing and return the names of their owners."""
    keyring_file = folder / "keys" / "keyring.json"
    for part in (folder, folder / "keys", folder / "agent-keys"):
        part.mkdir(mode=0o700, parents=True, exist_ok=True)
    entries: dict[str, KeyEntry] = {}
    if keyring_file.exists():
        entries = {entry.name: entry for entry in Keyring.load(keyring_file).entries()}
    made = []
    for name, roles in wanted(agents, users).items():
        place = "agent-keys" if roles == {Role.AGENT} else "keys"
        file = folder / place / f"{name}.key"
        if name in entries and file.exists():
            continue
        key, entries[name] = create_key(name, roles)
        write_private(file, key + "\n")
        made.append(name)
    Keyring(entries.values()).store(keyring_file)
    return made


def main() -> None:
    """Make the keys and say for whom."""
    parser = argparse.ArgumentParser(description="Makes the keys of a cluster.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--agent", action="append", default=[], metavar="NODE")
    parser.add_argument("--user", action="append", default=[], metavar="NAME")
    given = parser.parse_args()
    made = make_keys(given.folder, given.agent, given.user)
    print(f"new keys: {', '.join(made) or 'none'}; in {given.folder}")  # noqa: T201 - a command


if __name__ == "__main__":
    main()
