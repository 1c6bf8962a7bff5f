"""Takes the secret values out of what callers ask for, and seals them for agents.

Decides that a value is in nothing but the encrypted bytes: the lease has `[hidden]` in its place,
and the key of a request a digest.
"""

from __future__ import annotations

import json
from typing import TypeVar

from google.protobuf.message import Message

from tenure.admission.v1 import admission_pb2 as calls
from tenure.admission.v1 import lease_pb2 as pb
from tenure_core.errors import Invalid, Violation, WrongState
from tenure_core.secrets import HIDDEN, Encrypted
from tenure_runtime.sealing import SecretKeys, Unreadable, seal_for

Request = TypeVar("Request", bound=Message)


class SecretValues:
    """What admission does with secrets; without keys it takes none."""

    def __init__(self, keys: SecretKeys | None) -> None:
        self._keys = keys

    def take(self, lease: pb.Lease, lease_id: str) -> Encrypted | None:
        """Return a lease's secrets encrypted, None when it has none; the lease's are hidden.

        Raises Invalid when no key is there to encrypt them.
        """
        values = lease.work.secrets
        if not values:
            return None
        if self._keys is None:
            text = "cannot be kept here: secret_keys_file of admission is not set"
            raise Invalid([Violation("lease.work.secrets", "SECRETS_NOT_KEPT", text)])
        content = self._keys.encrypt(json.dumps(dict(values)).encode(), lease_id)
        for name in list(values):
            values[name] = HIDDEN
        return content

    def compared(self, request: Request) -> Request:
        """Return a request as repeats of it are known: digests in place of secret values."""
        leases = _leases(request)
        if not any(lease.work.secrets for lease in leases):
            return request
        copy = type(request)()
        copy.CopyFrom(request)
        for lease in _leases(copy):
            values = lease.work.secrets
            for name in list(values):
                values[name] = self._keys.digest(values[name]) if self._keys else HIDDEN
        return copy

    def seal(self, kept: Encrypted | None, lease_id: str, sealing_keys: list[bytes]) -> list[bytes]:
        """Return a lease's secrets, sealed for each key.

        Raises Invalid for what is no key, WrongState SECRETS_NOT_KEPT, SECRETS_UNREADABLE.
        """
        if kept is None or self._keys is None:
            raise WrongState("SECRETS_NOT_KEPT", f"No secrets of lease {lease_id} are kept here.")
        try:
            plain = self._keys.decrypt(kept, lease_id)
        except Unreadable as error:
            text = f"The secrets of lease {lease_id} cannot be decrypted: {error}."
            raise WrongState("SECRETS_UNREADABLE", text) from None
        try:
            return [seal_for(key, plain, lease_id) for key in sealing_keys]
        except ValueError:
            found = Violation("sealing_keys", "KEY_INVALID", "are X25519 keys of 32 bytes")
            raise Invalid([found]) from None


def _leases(request: Message) -> list[pb.Lease]:
    if isinstance(request, calls.CreateLeaseRequest):
        return [request.lease]
    if isinstance(request, calls.BatchCreateLeasesRequest):
        return [item.lease for item in request.requests]
    return []
