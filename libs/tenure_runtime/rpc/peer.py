"""Who a certificate is of, and what the holder of a key may be beside it.

A certificate names one caller, in its URI `spiffe://tenure/<role>/<name>`, or, made by a tool that
writes no URIs, in its DNS name `<name>.<role>.id.tenure`. A key of a keyring and its certificate
must be of the same name, and only those roles of the key count for which the certificate stands: a
stolen key is no use without its certificate, and no certificate does more than its role. The same
holds for tokens of services and agents. Who shows a key made by a call, an issuer's token or one
made of these is known by that, and needs the certificate of any person: those keys end by
themselves and are withdrawn by a call, and one person has several of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from tenure_core.errors import Forbidden, Unauthenticated
from tenure_runtime.rpc.identity import Credential, Identity, Role

TRUST_DOMAIN: Final = "tenure"
_ROLES: Final = "|".join(Role)
_NAME: Final = "[a-z0-9][a-z0-9.-]{0,62}"
_URI: Final = re.compile(rf"spiffe://{TRUST_DOMAIN}/({_ROLES})/({_NAME})")
_DNS: Final = re.compile(rf"({_NAME})\.({_ROLES})\.id\.{TRUST_DOMAIN}")
_STANDS_FOR: Final[Mapping[Role, frozenset[Role]]] = {
    Role.USER: frozenset({Role.USER}),
    Role.PROJECT_ADMIN: frozenset({Role.PROJECT_ADMIN, Role.USER}),
    Role.DOMAIN_ADMIN: frozenset({Role.DOMAIN_ADMIN, Role.PROJECT_ADMIN, Role.USER}),
    Role.OPERATOR: frozenset({Role.OPERATOR, Role.USER}),
    Role.SERVICE: frozenset({Role.SERVICE}),
    Role.AGENT: frozenset({Role.AGENT}),
}
_PEOPLE: Final = frozenset(
    {Role.USER, Role.PROJECT_ADMIN, Role.DOMAIN_ADMIN, Role.OPERATOR},
)


@dataclass(frozen=True, slots=True)
class Peer:
    """The caller that a certificate names."""

    role: Role
    name: str

    @property
    def uri(self) -> str:
        """Return the URI that stands in the certificate."""
        return f"spiffe://{TRUST_DOMAIN}/{self.role}/{self.name}"


def is_name(text: str) -> bool:
    """Say whether a certificate can be of this name."""
    return re.fullmatch(_NAME, text) is not None


def peer_of(auth: Mapping[str, Iterable[bytes]]) -> Peer:
    """Return who gRPC says is at the other end of a connection.

    Raises Unauthenticated CERTIFICATE_NAMES_NOBODY, for a certificate with several names too.
    """
    peer = _peer(tuple(auth.get("peer_uri", ())), tuple(auth.get("peer_dns", ())))
    if peer is None:
        raise Unauthenticated(
            "CERTIFICATE_NAMES_NOBODY",
            "The certificate names no caller, or several (spiffe://tenure/<role>/<name>).",
        )
    return peer


@lru_cache(maxsize=4_096)
def _peer(uris: tuple[bytes, ...], dns: tuple[bytes, ...]) -> Peer | None:
    found = {Peer(Role(match[1]), match[2]) for match in _matches(_URI, uris)}
    found |= {Peer(Role(match[2]), match[1]) for match in _matches(_DNS, dns)}
    return found.pop() if len(found) == 1 else None


def _matches(form: re.Pattern[str], names: tuple[bytes, ...]) -> Iterable[re.Match[str]]:
    return filter(None, (form.fullmatch(name.decode(errors="replace")) for name in names))


def vouched(known: Identity, peer: Peer) -> Identity:
    """Return who shows a credential, with the roles that its certificate stands for.

    Raises Forbidden CERTIFICATE_MISMATCH when credential and certificate do not go together.
    """
    if not _is_bound(known):
        if peer.role in _PEOPLE:
            return known
        raise _mismatch(known, peer)
    roles = known.roles & _STANDS_FOR[peer.role]
    if known.name != peer.name or not roles:
        raise _mismatch(known, peer)
    return replace(known, roles=roles)


def _is_bound(known: Identity) -> bool:
    """Say whether a credential counts with the certificate of its own name only."""
    if known.credential is Credential.KEYRING:
        return True
    return known.credential is Credential.TOKEN and not known.roles <= _PEOPLE


def _mismatch(known: Identity, peer: Peer) -> Forbidden:
    return Forbidden(
        "CERTIFICATE_MISMATCH",
        f"The key of {known.name} came over a connection of {peer.role} {peer.name}.",
        caller=known.name,
        certificate=peer.uri,
    )
