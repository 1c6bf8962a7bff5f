"""What a guardian is told, and how it travels from the agent to the warm process.

One message carries it; what is too long for a message lies in a file that the message names.
"""

from __future__ import annotations

import json
import os
from typing import NamedTuple

from tenure_agent.guardian.limits.bounds import Bounds
from tenure_agent.guardian.limits.bounds import unpack as unpack_bounds

# A unix socket takes some 200 KB a message by default; environments may be larger.
MESSAGE_BYTES_MAX = 65_536
_FILE = "spec.json"


class Spec(NamedTuple):
    """What a guardian is told. Times are in milliseconds, instants on the boot clock."""

    folder: str
    lease: str
    attempt: int
    rank: int
    node: str
    command: list[str]
    environment: dict[str, str]
    keep_on_loss: bool
    grace_ms: int
    output_bytes_max: int
    start_before_ms: int
    fence_file: str
    trail_file: str
    bounds: Bounds = Bounds()


def pack(spec: Spec) -> bytes:
    """Return the message for a spec, having written its file if it needs one."""
    content = json.dumps(spec).encode()
    if len(content) <= MESSAGE_BYTES_MAX:
        return content
    path = f"{spec.folder}/{_FILE}"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    return json.dumps(path).encode()


def is_spec(message: bytes) -> bool:
    """Say whether a message is a spec; those for a guardian that guards are objects."""
    return not message.startswith(b"{")


def unpack(message: bytes) -> Spec:
    """Return the spec of a message. Raises OSError when its file is gone."""
    content = json.loads(message)
    if isinstance(content, str):
        path = content
        with open(path, "rb") as file:
            content = json.loads(file.read())
        # It may hold secrets of the lease, and nobody reads it again.
        os.unlink(path)
    return Spec._make([*content[:-1], unpack_bounds(content[-1])])
