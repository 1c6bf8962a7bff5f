"""Encrypts what leases keep secret: at rest under keys of a file, on the way for one agent alone.

Decides formats: at rest AES-256-GCM, a nonce of 12 bytes before the ciphertext; on the way an
ephemeral X25519 key (32 bytes) before the ciphertext, its key by HKDF-SHA256. `about` is bound to
both, so that nothing can be passed off for something else.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import secrets
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tenure_core.secrets import Encrypted
from tenure_runtime.rpc.identity import write_private

KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12
# Each key encrypts one message, so its nonce may be the same.
_ONLY_NONCE: Final = bytes(_NONCE_BYTES)
_PURPOSE: Final = b"tenure: secrets of a lease, sealed for an agent"


class Unreadable(Exception):
    """What was encrypted cannot be opened: the key is another or gone, or it was changed."""


@dataclass(frozen=True, slots=True)
class SecretKeys:
    """The keys of a file by id, oldest first; the last one encrypts, all decrypt."""

    keys: tuple[tuple[str, bytes], ...]

    @classmethod
    def load(cls, file: Path) -> Self:
        """Return the keys of a file. Raises ValueError for one that others can read, or damaged."""
        if file.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise ValueError(f"{file} can be read by others: chmod 600 {file}")
        try:
            found = json.loads(file.read_text(encoding="utf-8"))["keys"]
            keys = tuple((each["id"], base64.b64decode(each["key"])) for each in found)
        except (KeyError, TypeError, ValueError):
            raise ValueError(f"{file} holds no keys for secrets") from None
        if not keys or any(len(key) != KEY_BYTES for _, key in keys):
            raise ValueError(f"{file} holds no keys for secrets, of {KEY_BYTES} bytes each")
        return cls(keys)

    @classmethod
    def made(cls) -> Self:
        """Return one new key."""
        return cls(()).rotated()

    def rotated(self) -> Self:
        """Return the keys with a new one, which encrypts from then on."""
        return type(self)((*self.keys, (secrets.token_hex(4), secrets.token_bytes(KEY_BYTES))))

    def store(self, file: Path) -> None:
        """Write the keys to a file, mode 0600, in one step."""
        keys = [{"id": name, "key": base64.b64encode(key).decode()} for name, key in self.keys]
        write_private(file, json.dumps({"keys": keys}, indent=2) + "\n")

    def encrypt(self, plain: bytes, about: str) -> Encrypted:
        """Return something encrypted under the last key."""
        key_id, key = self.keys[-1]
        nonce = os.urandom(_NONCE_BYTES)
        return Encrypted(key_id, nonce + AESGCM(key).encrypt(nonce, plain, about.encode()))

    def decrypt(self, encrypted: Encrypted, about: str) -> bytes:
        """Return what was encrypted. Raises Unreadable."""
        key = dict(self.keys).get(encrypted.key_id)
        if key is None:
            raise Unreadable(f"there is no key {encrypted.key_id!r} any more")
        nonce, content = encrypted.content[:_NONCE_BYTES], encrypted.content[_NONCE_BYTES:]
        try:
            return AESGCM(key).decrypt(nonce, content, about.encode())
        except InvalidTag:
            raise Unreadable("it was changed, or is about something else") from None

    def digest(self, value: str) -> str:
        """Return what stands for a value where two have to be compared; by the oldest key."""
        mixed = hashlib.sha256(b"digest" + self.keys[0][1]).digest()
        return hmac.new(mixed, value.encode(), hashlib.sha256).hexdigest()


class SealingKey:
    """The key of one agent, for which others seal."""

    def __init__(self, key: X25519PrivateKey) -> None:
        self._key = key

    @classmethod
    def open(cls, file: Path) -> Self:
        """Return the key in a file, made with mode 0600 when it is not there yet."""
        if not file.exists():
            made = X25519PrivateKey.generate().private_bytes_raw()
            write_private(file, base64.b64encode(made).decode() + "\n")
        return cls(X25519PrivateKey.from_private_bytes(base64.b64decode(file.read_bytes())))

    @classmethod
    def made(cls) -> Self:
        """Return a new key."""
        return cls(X25519PrivateKey.generate())

    @property
    def public(self) -> bytes:
        """Return the half to tell others, 32 bytes."""
        return self._key.public_key().public_bytes_raw()

    def unseal(self, sealed: bytes, about: str) -> bytes:
        """Return what was sealed for this key. Raises Unreadable."""
        try:
            ephemeral = X25519PublicKey.from_public_bytes(sealed[:KEY_BYTES])
            key = _derive(self._key.exchange(ephemeral), sealed[:KEY_BYTES], self.public)
            return AESGCM(key).decrypt(_ONLY_NONCE, sealed[KEY_BYTES:], about.encode())
        except (InvalidTag, ValueError):
            raise Unreadable("it was sealed for another key, changed, or cut short") from None


def seal_for(public: bytes, plain: bytes, about: str) -> bytes:
    """Return something that only the holder of a key can open.

    Raises ValueError for what is no public key.
    """
    ephemeral = X25519PrivateKey.generate()
    begin = ephemeral.public_key().public_bytes_raw()
    shared = ephemeral.exchange(X25519PublicKey.from_public_bytes(public))
    content = AESGCM(_derive(shared, begin, public)).encrypt(_ONLY_NONCE, plain, about.encode())
    return begin + content


def _derive(shared: bytes, ephemeral: bytes, public: bytes) -> bytes:
    info = _PURPOSE + ephemeral + public
    return HKDF(hashes.SHA256(), KEY_BYTES, salt=None, info=info).derive(shared)
