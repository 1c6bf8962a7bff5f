"""Starts and stops the whole suite on one machine: database, elections, services, agents.

Decides what runs with which settings, in which order, and what is written down for the next time.
How processes are watched and restarted is `tenure_runtime.embedded.processes`'.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from tenure_cli.embedded.keys import OPERATOR, KeyCabinet
from tenure_cli.embedded.layout import (
    SERVICES,
    SETTINGS,
    TLS,
    TRACES,
    SuiteState,
    agent_settings,
    free_ports,
    read_state,
    write_metrics_targets,
    write_state,
)
from tenure_core.errors import NotFound
from tenure_runtime.clocks import SystemClock
from tenure_runtime.embedded.authority import CertificateCabinet
from tenure_runtime.embedded.authority_plan import CertificateTerms
from tenure_runtime.embedded.detached import end_all
from tenure_runtime.embedded.etcd import EmbeddedEtcd, find_etcd
from tenure_runtime.embedded.log_stream import LogStream
from tenure_runtime.embedded.postgres import EmbeddedPostgres
from tenure_runtime.embedded.processes import (
    ChildSpec,
    ProcessGroup,
    keep_running,
    lock_data_folder,
)
from tenure_runtime.embedded.readiness import grpc_health
from tenure_runtime.process import run_loop
from tenure_runtime.rpc.transport import TlsFiles

DATABASE: Final = "tenure"
_PASSED_ON: Final = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "PYTHONPATH", "USER", "LOGNAME")
_START_TIMEOUT_S: Final = 60.0
_RENEW_EVERY_S: Final = 30.0
MACHINES: Final = "machines"
MACHINE_GRACE_S: Final = 15.0


@dataclass(frozen=True, slots=True)
class SuiteOptions:
    """What `tenure up` was asked for.

    `agents` None keeps the number of the last time (2 the first time). `agent_capacity` replaces
    what each agent detects (`cpu=4,memory=8Gi`). `machines` is for how many machines, at most, the
    autoscaler finds agents' keys. `postgres` names a folder with the server's programs, or is a DSN
    of a server that runs already. `traces` keeps spans in the folder, `metrics` has each service
    serve its own on the loopback address. With `new_ports`, free ones are taken instead of those of
    the last time. `services` adds settings by service name. All speak mutual TLS with certificates
    that live as `certificates` says, unless `plaintext` is asked for.
    """

    data: Path
    agents: int | None = None
    agent_capacity: str | None = None
    agent_attributes: str = ""
    on_stop: str = "keep"
    etcd: bool = True
    postgres: str = ""
    otlp_endpoint: str = ""
    traces: bool = True
    metrics: bool = True
    log_form: str = "console"
    machines: int = 8
    new_ports: bool = False
    plaintext: bool = False
    certificates: CertificateTerms = field(default_factory=CertificateTerms)
    services: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    postgres_settings: Mapping[str, str] = field(default_factory=dict)


class Suite:
    """One running suite. Start it from the main thread: its children end with it."""

    def __init__(self, options: SuiteOptions, stream: LogStream) -> None:
        self.options = options
        self._stream = stream
        self._lock = lock_data_folder(options.data)
        self.keys = KeyCabinet(options.data / "keys")
        self.certificates = CertificateCabinet(options.data / TLS, options.certificates)
        self.state = self._state()
        self.postgres: EmbeddedPostgres | None = None
        self.etcd: EmbeddedEtcd | None = None
        self.processes = ProcessGroup(options.data / "logs", stream)
        self._keepers: list[asyncio.Task[None]] = []
        self._dsn = ""

    def _state(self) -> SuiteState:
        try:
            known = read_state(self.options.data)
        except NotFound:
            known = SuiteState(free_ports(SERVICES), agents=2)
        if self.options.new_ports:
            known = replace(known, ports=free_ports(SERVICES))
        agents = known.agents if self.options.agents is None else self.options.agents
        offered = self.options.agent_capacity
        capacity = known.capacity if offered is None else offered
        metrics = dict(known.metrics_ports) if self.options.metrics else {}
        if self.options.metrics and (not metrics or self.options.new_ports):
            metrics = free_ports(SERVICES)
        return replace(
            known,
            agents=agents,
            capacity=capacity,
            pid=os.getpid(),
            plaintext=self.options.plaintext,
            metrics_ports=metrics,
        )

    def agent_names(self) -> list[str]:
        """Return the ids of the local agents."""
        return [f"agent-{number}" for number in range(1, self.state.agents + 1)]

    def machine_names(self) -> list[str]:
        """Return the ids that machines of the autoscaler can have."""
        return [f"machine-{number}" for number in range(1, self.options.machines + 1)]

    async def start(self) -> None:
        """Start everything and return when all of it serves; on an error, stop what was started."""
        try:
            self.keys.prepare([*self.agent_names(), *self.machine_names()])
            self._certify()
            await asyncio.gather(self._start_postgres(), self._start_etcd())
            election = "etcd" if self.etcd is not None else "row"
            self.state = replace(self.state, election=election)
            write_state(self.options.data, self.state)
            write_metrics_targets(self.options.data, self.state)
            await self.processes.start_together([self._service(name) for name in SERVICES])
            await self.processes.start_together([self.agent(n) for n in self.agent_names()])
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop agents, services, elections and database, in this order; state is kept."""
        for keeper in self._keepers:
            keeper.cancel()
        # A restart under way must not race with the stop.
        await asyncio.gather(*self._keepers, return_exceptions=True)
        await self.processes.stop("autoscaler")
        await asyncio.gather(
            asyncio.to_thread(end_all, self.options.data / MACHINES, grace_s=MACHINE_GRACE_S),
            *(self.processes.stop(name) for name in self.agent_names()),
        )
        await self.processes.stop_all()
        if self.etcd is not None:
            await self.etcd.stop()
        if self.postgres is not None:
            await self.postgres.stop()
        self._lock.release()

    def _certify(self) -> None:
        """Make the certificates, and from now on make each anew before it ends."""
        if self.options.plaintext:
            return
        clock, peers = SystemClock(), self.keys.peers()
        self.certificates.renew(peers, clock.now_ms())

        async def renew() -> None:
            made = await asyncio.to_thread(self.certificates.renew, peers, clock.now_ms())
            if made:
                self._stream.show("tls", f"new certificates: {', '.join(made)}")

        # Often enough for a machine that slept, and for certificates that live for seconds.
        period_s = min(_RENEW_EVERY_S, self.options.certificates.certificate_ms / 10_000)
        self._stream.register("tls")
        keeper = run_loop("up.certificates", renew, period_s=period_s)
        self._keepers.append(asyncio.create_task(keeper))

    def tls(self, name: str) -> TlsFiles | None:
        """Return the TLS files of a caller; None when the suite speaks plain text."""
        return None if self.options.plaintext else self.certificates.files(name)

    def tls_settings(self, name: str) -> dict[str, str]:
        """Return what tells a process that it speaks TLS, and as whom."""
        files = self.tls(name)
        if files is None:
            return {}
        return {
            "TENURE_TLS_CERTIFICATE": str(files.certificate),
            "TENURE_TLS_PRIVATE_KEY": str(files.private_key),
            "TENURE_TLS_AUTHORITY": str(files.authority),
        }

    async def _start_postgres(self) -> None:
        named = self.options.postgres
        if named.startswith(("postgres://", "postgresql://")):
            self._dsn = named
            return
        self.postgres = EmbeddedPostgres(
            self.options.data / "postgres",
            binaries=Path(named) if named else None,
            settings=dict(self.options.postgres_settings),
        )
        await self.postgres.start()
        self._dsn = await self.postgres.ensure_database(DATABASE)
        self._keep(self.postgres, "postgres")

    async def _start_etcd(self) -> None:
        if not self.options.etcd or find_etcd() is None:
            return
        self.etcd = EmbeddedEtcd(self.options.data / "etcd")
        await self.etcd.start()
        self._keep(self.etcd, "etcd")

    def _keep(self, server: EmbeddedPostgres | EmbeddedEtcd, name: str) -> None:
        self._stream.register(name)
        keeper = keep_running(server, lambda line: self._stream.show(name, line))
        self._keepers.append(asyncio.create_task(keeper))

    def _environment(self, more: Mapping[str, str]) -> dict[str, str]:
        passed = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        shared = {"TENURE_LOG_FORM": self.options.log_form, "PYTHONUNBUFFERED": "1"}
        if self.options.otlp_endpoint:
            shared["TENURE_OTLP_ENDPOINT"] = self.options.otlp_endpoint
        if self.options.traces:
            shared["TENURE_TRACE_STORE"] = str(self.options.data / TRACES)
        return {**passed, **shared, **more}

    def _service(self, name: str) -> ChildSpec:
        address = self.state.address(name)
        settings = {
            "TENURE_LISTEN": address,
            "TENURE_KEYRING_FILE": str(self.keys.keyring_file),
            "TENURE_API_KEY": self.keys.read(name),
            "TENURE_DATABASE_DSN": self._dsn,
            "TENURE_INSTANCE": f"{name}-1",
            **self.tls_settings(name),
        }
        neighbours = {
            "admission": ("slottable", "scheduler"),
            "slottable": ("admission",),
            "registry": ("admission",),
            "scheduler": ("admission", "slottable", "registry"),
            "autoscaler": ("admission", "registry", "scheduler", "slottable"),
        }
        for neighbour in neighbours.get(name, ()):
            settings[f"TENURE_{neighbour.upper()}_ADDRESS"] = self.state.address(neighbour)
        if name == "admission":
            settings["TENURE_SECRET_KEYS_FILE"] = str(self.keys.secrets_file)
        if name in ("scheduler", "autoscaler") and self.etcd is not None:
            settings["TENURE_ETCD_ENDPOINTS"] = self.etcd.endpoint
        if name == "autoscaler":
            settings["TENURE_MACHINE_KEYS_DIR"] = str(self.keys.folder)
            if not self.options.plaintext:
                settings["TENURE_MACHINE_TLS_DIR"] = str(self.certificates.folder)
            settings["TENURE_MACHINE_DATA_DIR"] = str(self.options.data / MACHINES)
        if name in self.state.metrics_ports:
            settings["TENURE_METRICS_LISTEN"] = f"127.0.0.1:{self.state.metrics_ports[name]}"
        settings |= {**self._settings_file(name), **self.options.services.get(name, {})}
        return ChildSpec(
            name,
            (sys.executable, "-m", f"tenure_{name}"),
            self._environment(settings),
            ready=grpc_health(address, tls=self.tls(OPERATOR)),
            ready_timeout_s=_START_TIMEOUT_S,
            ports=(self.state.ports[name],),
        )

    def _settings_file(self, name: str) -> dict[str, str]:
        """Return what names a file of knobs, when there is one; what `up` sets comes before it."""
        file = self.options.data / SETTINGS / f"{name}.toml"
        return {"TENURE_SETTINGS_FILE": str(file)} if file.is_file() else {}

    def agent(self, name: str) -> ChildSpec:
        """Return how one local agent is run."""
        folder = self.options.data / "agents" / name
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        ready = folder / "ready.json"
        ready.unlink(missing_ok=True)
        settings = {
            "TENURE_AGENT_ID": name,
            "TENURE_REGISTRY_ADDRESS": self.state.address("registry"),
            "TENURE_KEY_FILE": str(self.keys.file(name)),
            "TENURE_DATA_DIR": str(folder),
            "TENURE_CAPACITY": self.state.capacity,
            "TENURE_ATTRIBUTES": self.options.agent_attributes,
            "TENURE_ON_STOP": self.options.on_stop,
            "TENURE_READY_FILE": str(ready),
            **self.tls_settings(name),
            **agent_settings(self.options.data),
            **self.options.services.get("agent", {}),
        }

        async def is_ready() -> bool:
            return ready.exists()

        return ChildSpec(
            name,
            (sys.executable, "-m", "tenure_agent"),
            self._environment(settings),
            ready=is_ready,
            ready_timeout_s=_START_TIMEOUT_S,
        )
