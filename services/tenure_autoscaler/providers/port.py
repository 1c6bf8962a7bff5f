"""What a provider of machines must be able to do, and the words in which it refuses.

A provider is asked only by the acting leader of a group, after the order is in the database. It
puts owner and token on a machine in the very call that makes it, and tells them in its listing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tenure_core.resources import ResourceVector


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a provider can do.

    `creates_once`: a create with a token that has a machine returns that machine. `names`: the
    only names that a machine can have (there are keys for their agents), None for any.
    """

    creates_once: bool = True
    suspends: bool = False
    names: tuple[str, ...] | None = None
    launches_per_minute: int = 60


@dataclass(frozen=True, slots=True)
class MachineSpec:
    """A machine that is asked for: its name is its agent's; owner and token are its marks."""

    machine: str
    owner: str
    token: str
    group: str
    pool: str
    amounts: ResourceVector
    epoch: int
    application: str = ""
    """Program that the machine is to run beside its agent; empty: none."""


@dataclass(frozen=True, slots=True)
class ProvidedMachine:
    """A machine as its provider lists it; without our marks it is somebody else's."""

    provider_id: str
    machine: str = ""
    owner: str = ""
    token: str = ""
    asleep: bool = False


@dataclass(frozen=True, slots=True)
class ProviderListing:
    """All machines; `complete` is false when a page or a zone is missing."""

    machines: tuple[ProvidedMachine, ...]
    complete: bool = True


class ProviderRefusedError(Exception):
    """A provider's answer that is no success; `code` is its own word for it.

    Its meaning is `tenure_core.autoscaling.provider_errors.error_class`'s; it never leaves the
    autoscaler but in the results of decisions.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Provider(Protocol):
    """One provider. Calls may take long and be cancelled; a cancelled call may have had effect."""

    @property
    def capabilities(self) -> Capabilities:
        """Return what it can do."""
        ...

    async def create(self, spec: MachineSpec) -> str:
        """Make a machine and return its id there. Raises ProviderRefusedError."""
        ...

    async def list_machines(self) -> ProviderListing:
        """Return all machines, foreign ones included. Raises ProviderRefusedError."""
        ...

    async def suspend(self, provider_id: str) -> None:
        """Have a machine sleep with its state kept, if `suspends`; no error when it does."""
        ...

    async def resume(self, provider_id: str) -> None:
        """Wake a machine, if `suspends`; no error when it is awake. Raises ProviderRefusedError."""
        ...

    async def remove(self, provider_id: str) -> None:
        """Ask for a machine's end; no error when it is gone. Raises ProviderRefusedError."""
        ...
