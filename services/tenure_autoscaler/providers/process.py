"""The provider `process`: a machine is an agent process on this computer.

For one computer and for seeing scaling at work: the agent gets a data folder of its own, runs
apart from the autoscaler, and is found again after a restart of either. The keys of agents are
made beforehand, one a machine, and say which machines there can be.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Final

from tenure_autoscaler.providers.port import (
    Capabilities,
    MachineSpec,
    ProvidedMachine,
    ProviderListing,
    ProviderRefusedError,
)
from tenure_autoscaler.settings import AutoscalerSettings
from tenure_autoscaler.values import GROUP_ATTRIBUTE
from tenure_core.resources import format_quantity
from tenure_runtime.embedded.detached import Detached, DetachedProcesses

STOP_GRACE_S: Final = 20.0
"""How long an agent may take to end its work after it was asked to."""

ENDED_KEPT: Final = 20
"""How many folders of machines that have ended are kept, for people to look into."""

_PASSED_ON: Final = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "PYTHONPATH", "USER", "LOGNAME")
_SETTINGS_PASSED_ON: Final = (
    *("TENURE_LOG_FORM", "TENURE_LOG_LEVEL", "TENURE_OTLP_ENDPOINT", "TENURE_TRACE_STORE"),
)


class ProcessProvider:
    """Starts agents below `machines`, with the keys in `keys` (`{machine}.key`).

    `tls` is the folder with their certificates; without, they speak plain text.
    """

    def __init__(
        self, machines: Path, keys: Path, registry_address: str, tls: Path | None = None
    ) -> None:
        self._machines = machines
        self._processes = DetachedProcesses(machines)
        self._keys = keys
        self._registry_address = registry_address
        self._tls = tls

    @classmethod
    def of(cls, settings: AutoscalerSettings) -> ProcessProvider:
        """Return the provider that settings describe. Raises ValueError when one is missing."""
        machines, keys = settings.machine_data_dir, settings.machine_keys_dir
        if machines is None or keys is None or settings.registry_address is None:
            raise ValueError(
                "the provider `process` needs TENURE_MACHINE_DATA_DIR, TENURE_MACHINE_KEYS_DIR"
                " and TENURE_REGISTRY_ADDRESS"
            )
        return cls(machines, keys, settings.registry_address, settings.machine_tls_dir)

    @property
    def capabilities(self) -> Capabilities:
        """See `Provider`: each machine has its key, so the keys are all the names there are."""
        names = sorted(
            (path.stem for path in self._keys.glob("machine-*.key")),
            key=lambda name: (len(name), name),
        )
        return Capabilities(names=tuple(names), suspends=True)

    async def create(self, spec: MachineSpec) -> str:
        """See `Provider`; the id is the token."""
        return await asyncio.to_thread(self._create, spec)

    def _create(self, spec: MachineSpec) -> str:
        key = self._keys / f"{spec.machine}.key"
        if not key.exists():
            raise ProviderRefusedError("INVALID_PARAMETER", f"no key for {spec.machine}")
        known = self._processes.read(spec.token)
        if known is not None and known.began and not self._processes.runs(known):
            # A token is for one life; this one is over.
            raise ProviderRefusedError("INVALID_PARAMETER", f"{spec.token} has ended")
        folder = self._processes.folder(spec.token)
        facts = {"machine": spec.machine, "owner": spec.owner, "token": spec.token}
        environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        environment |= {n: os.environ[n] for n in _SETTINGS_PASSED_ON if n in os.environ}
        environment |= {
            "TENURE_AGENT_ID": spec.machine,
            "TENURE_REGISTRY_ADDRESS": self._registry_address,
            "TENURE_KEY_FILE": str(key.absolute()),
            "TENURE_DATA_DIR": str((folder / "agent").absolute()),
            "TENURE_POOL": spec.pool,
            "TENURE_CAPACITY": ",".join(
                f"{kind}={format_quantity(kind, amount)}" for kind, amount in spec.amounts.items()
            ),
            "TENURE_ATTRIBUTES": f"{GROUP_ATTRIBUTE}={spec.group}",
            "TENURE_APPLICATION": spec.application,
            "TENURE_ON_STOP": "stop",
            "TENURE_STOP_WAIT_S": str(int(STOP_GRACE_S / 2)),
            "PYTHONUNBUFFERED": "1",
            **self._tls_settings(spec.machine),
        }
        command = (sys.executable, "-m", "tenure_agent")
        return self._processes.start(spec.token, facts, command, environment).mark

    def _tls_settings(self, machine: str) -> dict[str, str]:
        if self._tls is None:
            return {}
        return {
            "TENURE_TLS_CERTIFICATE": str((self._tls / f"{machine}.crt").absolute()),
            "TENURE_TLS_PRIVATE_KEY": str((self._tls / f"{machine}.key").absolute()),
            "TENURE_TLS_AUTHORITY": str((self._tls / "authority.pem").absolute()),
        }

    async def list_machines(self) -> ProviderListing:
        """See `Provider`."""
        return await asyncio.to_thread(self._list)

    def _list(self) -> ProviderListing:
        machines, ended = [], []
        for process in self._processes.all():
            if self._processes.runs(process):
                asleep = self._processes.stands_still(process)
                machines.append(replace(_provided(process), asleep=asleep))
            elif process.began:
                ended.append(process)
        self._forget(ended)
        return ProviderListing(tuple(machines))

    def _forget(self, ended: list[Detached]) -> None:
        ended.sort(key=lambda process: process.started_ticks)
        for process in ended[: max(0, len(ended) - ENDED_KEPT)]:
            shutil.rmtree(self._processes.folder(process.mark), ignore_errors=True)

    async def suspend(self, provider_id: str) -> None:
        """See `Provider`: the agent and all that it started stand still."""
        process = await asyncio.to_thread(self._processes.read, provider_id)
        if process is not None:
            await asyncio.to_thread(self._processes.suspend, process)

    async def resume(self, provider_id: str) -> None:
        """See `Provider`."""
        process = await asyncio.to_thread(self._processes.read, provider_id)
        if process is not None:
            await asyncio.to_thread(self._processes.resume, process)

    async def remove(self, provider_id: str) -> None:
        """See `Provider`: SIGTERM, and SIGKILL when that was too long ago."""
        process = await asyncio.to_thread(self._processes.read, provider_id)
        if process is not None:
            self._processes.end(process, grace_s=STOP_GRACE_S)


def _provided(process: Detached) -> ProvidedMachine:
    facts = process.facts
    return ProvidedMachine(
        process.mark, facts.get("machine", ""), facts.get("owner", ""), facts.get("token", "")
    )
