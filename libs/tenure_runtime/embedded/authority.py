"""An authority of our own: makes a certificate for each caller, and makes it anew before it ends.

The folder (0700) holds `authority.pem`, what is to be trusted; `<name>.crt` and `<name>.key` for
each caller; and in `authority/` the authorities' own certificates and keys. Every key file has
mode 0600. When something is due is decided in `authority_plan`.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tenure_core.timebase import Interval, Millis
from tenure_runtime.embedded.authority_plan import (
    CertificateTerms,
    certificate_span,
    ends_soon,
    plan_authorities,
)
from tenure_runtime.rpc.identity import Role, write_private
from tenure_runtime.rpc.peer import Peer
from tenure_runtime.rpc.transport import TlsFiles

TRUSTED: Final = "authority.pem"
LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class Authority:
    """One authority: its certificate and the key that signs."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


class CertificateCabinet:
    """The certificates in one folder. `addresses` are the names under which services are called."""

    def __init__(
        self,
        folder: Path,
        terms: CertificateTerms | None = None,
        *,
        addresses: Iterable[str] = LOOPBACK,
    ) -> None:
        self._folder = folder
        self._terms = terms or CertificateTerms()
        self._addresses = tuple(addresses)

    @property
    def folder(self) -> Path:
        """Return the folder, with `{name}.crt` and `{name}.key` for each caller."""
        return self._folder

    def files(self, name: str) -> TlsFiles:
        """Return the files of a caller."""
        return files_in(self._folder, name)

    def renew(self, peers: Iterable[Peer], now_ms: Millis) -> list[str]:
        """Make what is missing or ends soon; return the names of those whose were made."""
        for folder in (self._folder, self._folder / "authority"):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        signer = self._signer(now_ms)
        made = [peer for peer in peers if not self._is_fine(peer, signer, now_ms)]
        for peer in made:
            self._issue(peer, signer, now_ms, self.files(peer.name))
        return [peer.name for peer in made]

    def hand_out(self, peer: Peer, folder: Path, now_ms: Millis) -> TlsFiles:
        """Make a certificate for somebody elsewhere, with whom to trust; return the files.

        Nothing of it is kept. Raises FileExistsError rather than write over files.
        """
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        files = files_in(folder, peer.name)
        assert files.authority is not None
        taken = [each for each in (files.certificate, files.private_key) if each and each.exists()]
        if taken:
            raise FileExistsError(f"{taken[0]} exists")
        self._issue(peer, self._signer(now_ms), now_ms, files)
        write_private(files.authority, (self._folder / TRUSTED).read_text(encoding="ascii"))
        return files

    def _signer(self, now_ms: Millis) -> Authority:
        """Write down whom to trust, with a new authority where one is due; return who signs."""
        known = self._known()
        spans = {number: span_of(each.certificate) for number, each in known.items()}
        plan = plan_authorities(spans, now_ms, self._terms)
        if plan.needs_new:
            number = max(known, default=0) + 1
            known[number] = self._found(number, now_ms)
            spans[number] = span_of(known[number].certificate)
            plan = plan_authorities(spans, now_ms, self._terms)
        assert plan.signer is not None
        bundle = "".join(_pem(known[number].certificate) for number in plan.trusted)
        file = self._folder / TRUSTED
        if not file.exists() or file.read_text(encoding="ascii") != bundle:
            write_private(file, bundle)
        for number in known.keys() - set(plan.trusted):
            for ending in ("crt", "key"):
                self._authority_file(number, ending).unlink(missing_ok=True)
        return known[plan.signer]

    def _authority_file(self, number: int, ending: str) -> Path:
        return self._folder / "authority" / f"{number}.{ending}"

    def _known(self) -> dict[int, Authority]:
        """Return the authorities by number; one that cannot be read is none."""
        found: dict[int, Authority] = {}
        for file in (self._folder / "authority").glob("*.crt"):
            certificate, key = read_certificate(file), _read_key(file.with_suffix(".key"))
            if certificate is None or key is None or not file.stem.isdecimal():
                continue
            if certificate.public_key() == key.public_key():
                found[int(file.stem)] = Authority(certificate, key)
        return found

    def _found(self, number: int, now_ms: Millis) -> Authority:
        span = Interval(now_ms - self._terms.early_ms, now_ms + self._terms.authority_ms)
        key = ec.generate_private_key(ec.SECP256R1())
        name = _named(f"Tenure authority {number} of {os.urandom(4).hex()}")
        builder = (
            _builder(name, name, key, span)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
        )
        made = Authority(builder.sign(key, hashes.SHA256()), key)
        write_private(self._authority_file(number, "key"), _key_pem(key))
        write_private(self._authority_file(number, "crt"), _pem(made.certificate))
        return made

    def _is_fine(self, peer: Peer, signer: Authority, now_ms: Millis) -> bool:
        files = self.files(peer.name)
        assert files.certificate is not None and files.private_key is not None
        certificate = read_certificate(files.certificate)
        key = _read_key(files.private_key)
        return (
            certificate is not None
            and key is not None
            and certificate.public_key() == key.public_key()
            and is_signed_by(certificate, signer.certificate)
            and _names_of(certificate) == self._names(peer)
            and not ends_soon(span_of(certificate), now_ms)
        )

    def _names(self, peer: Peer) -> list[x509.GeneralName]:
        """Return who the certificate is of and, of a service, where it is called."""
        addresses = self._addresses if peer.role is Role.SERVICE else ()
        return [x509.UniformResourceIdentifier(peer.uri), *map(_general_name, addresses)]

    def _issue(self, peer: Peer, signer: Authority, now_ms: Millis, files: TlsFiles) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        uses = [ExtendedKeyUsageOID.CLIENT_AUTH]
        if peer.role is Role.SERVICE:  # nobody else can pass for a server
            uses.append(ExtendedKeyUsageOID.SERVER_AUTH)
        issuer = signer.certificate
        span = certificate_span(span_of(issuer), now_ms, self._terms)
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.key.public_key())
        builder = (
            _builder(_named(peer.name), issuer.subject, key, span)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
            .add_extension(x509.SubjectAlternativeName(self._names(peer)), critical=False)
            .add_extension(identifier, critical=False)
        )
        certificate = builder.sign(signer.key, hashes.SHA256())
        assert files.certificate is not None and files.private_key is not None
        # Readers wait for a pair that fits. A crash loses nothing: both are made again.
        write_private(files.private_key, _key_pem(key), durable=False)
        write_private(files.certificate, _pem(certificate), durable=False)


def files_in(folder: Path, name: str) -> TlsFiles:
    """Return the files of a caller in the folder of an authority."""
    return TlsFiles(folder / f"{name}.crt", folder / f"{name}.key", folder / TRUSTED)


def read_certificate(path: Path) -> x509.Certificate | None:
    """Return the first certificate in a file; None when there is none."""
    return next(iter(read_certificates(path)), None)


def read_certificates(path: Path) -> list[x509.Certificate]:
    """Return all certificates in a file; none when it cannot be read."""
    try:
        return x509.load_pem_x509_certificates(path.read_bytes())
    except (OSError, ValueError):
        return []


def span_of(certificate: x509.Certificate) -> Interval:
    """Return when a certificate is valid."""
    return Interval(
        _millis(certificate.not_valid_before_utc), _millis(certificate.not_valid_after_utc)
    )


def _names_of(certificate: x509.Certificate) -> list[x509.GeneralName]:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except (x509.ExtensionNotFound, ValueError):
        return []
    return list(found.value)


def is_signed_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    """Say whether an authority signed a certificate; its span is not looked at."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _read_key(path: Path) -> ec.EllipticCurvePrivateKey | None:
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), None)
    except (OSError, ValueError, TypeError):
        return None
    return key if isinstance(key, ec.EllipticCurvePrivateKey) else None


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, span: Interval
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_moment(span.start))
        .not_valid_after(_moment(span.end))
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(address: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(address))
    except ValueError:
        return x509.DNSName(address)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode("ascii")


def _key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode("ascii")


def _moment(instant: Millis) -> datetime:
    return datetime.fromtimestamp(instant / 1_000, UTC)


def _millis(moment: datetime) -> Millis:
    return int(moment.timestamp() * 1_000)
