"""Makes keys and certificates of a cluster: who may call, as files for five Secrets.

    python helm/make_keys.py FOLDER --agent NODE… --user NAME…
    for each in keys agent-keys lease-secrets tls agent-tls; do
        kubectl create secret generic tenure-$each --from-file=FOLDER/$each
    done

`keys/` gets keyring.json and <name>.key for the operator, the five services and the users;
`agent-keys/` gets <node>.key; `lease-secrets/` gets secrets.json, the key under which admission
keeps secrets of leases. `tls/` and `agent-tls/` get authority.pem, <name>.crt and <name>.key,
valid for a year. Whatever is there already stays as it is, so that nodes and users can be added
later; certificates with less than a third of their year left are made anew. The folder is as
secret as the keys: the authority's own key stays in `certificates/authority/`.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from typing import Final

from tenure_runtime.clocks import SystemClock
from tenure_runtime.embedded.authority import LOOPBACK, TRUSTED, CertificateCabinet
from tenure_runtime.embedded.authority_plan import CertificateTerms
from tenure_runtime.rpc.identity import KeyEntry, Keyring, Role, create_key, write_private
from tenure_runtime.rpc.peer import Peer
from tenure_runtime.sealing import SecretKeys

SERVICES: Final = ("admission", "slottable", "scheduler", "registry", "autoscaler")

_YEAR_MS: Final = 365 * 86_400_000
TERMS: Final = CertificateTerms(
    authority_ms=10 * _YEAR_MS, certificate_ms=_YEAR_MS, overlap_ms=30 * 86_400_000
)


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
    secrets_file = folder / "lease-secrets" / "secrets.json"
    if not secrets_file.exists():
        secrets_file.parent.mkdir(mode=0o700, exist_ok=True)
        SecretKeys.made().store(secrets_file)
    return made


def make_certificates(
    folder: Path, agents: list[str], users: list[str], release: str, now_ms: int
) -> list[str]:
    """Make the certificates that are missing or end soon; return the names of their owners.

    Services are called `<release>-<service>`.
    """
    cabinet = CertificateCabinet(
        folder / "certificates",
        TERMS,
        addresses=(*LOOPBACK, *(f"{release}-{service}" for service in SERVICES)),
    )
    peers = [
        # The operator's key is a user's, too; its certificate stands for both.
        Peer(Role.OPERATOR if Role.OPERATOR in roles else next(iter(roles)), name)
        for name, roles in wanted(agents, users).items()
    ]
    made = cabinet.renew(peers, now_ms)
    for peer in peers:
        place = folder / ("agent-tls" if peer.role is Role.AGENT else "tls")
        place.mkdir(mode=0o700, exist_ok=True)
        for file in (TRUSTED, f"{peer.name}.crt", f"{peer.name}.key"):
            shutil.copy2(cabinet.folder / file, place / file)
    return made


def main() -> None:
    """Make keys and certificates and say for whom."""
    parser = argparse.ArgumentParser(description="Makes keys and certificates of a cluster.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--agent", action="append", default=[], metavar="NODE")
    parser.add_argument("--user", action="append", default=[], metavar="NAME")
    parser.add_argument("--release", default="tenure", help="what names of Services begin with")
    given = parser.parse_args()
    keys = make_keys(given.folder, given.agent, given.user)
    now_ms = SystemClock().now_ms()
    certified = make_certificates(given.folder, given.agent, given.user, given.release, now_ms)
    for kind, made in (("keys", keys), ("certificates", certified)):
        print(f"new {kind}: {', '.join(made) or 'none'}; in {given.folder}")  # noqa: T201


if __name__ == "__main__":
    main()
