"""Opens the secrets of a lease, at the moment its work starts and not before."""

from __future__ import annotations

import json
from dataclasses import replace

from tenure_agent.work import Launch
from tenure_runtime.sealing import SealingKey, Unreadable


def opened(launch: Launch, lease: str, key: SealingKey) -> Launch:
    """Return a launch with its secrets in its environment. Raises Unreadable.

    A START whose secrets are missing is not carried out: work without its password does harm.
    """
    if not launch.secrets:
        return launch
    values = json.loads(key.unseal(launch.sealed_secrets, lease))
    if values.keys() != set(launch.secrets):
        raise Unreadable("they are not those that the lease names")
    return replace(launch, environment={**launch.environment, **values}, sealed_secrets=b"")
