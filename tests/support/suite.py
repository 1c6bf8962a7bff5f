"""The whole suite as real processes inside a test: on a folder of its own, gone afterwards.

Its log goes to a file, whose end is shown when the test fails.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from tenure_cli.connection import Connection
from tenure_cli.embedded.forgetting import forget
from tenure_cli.embedded.layout import free_ports
from tenure_cli.embedded.readable import readable
from tenure_cli.embedded.suite import DATABASE, Suite, SuiteOptions
from tenure_runtime.embedded.log_stream import LogStream
from tenure_runtime.embedded.readiness import grpc_health
from tenure_runtime.rpc.client import Client, connect
from tenure_runtime.rpc.identity import Keyring, Role, create_key, write_private

FAST: Final[Mapping[str, Mapping[str, str]]] = {
    "registry": {
        "TENURE_HEARTBEAT_PERIOD_MS": "250",
        "TENURE_FENCE_MS": "2500",
        "TENURE_LOSS_MS": "4000",
    },
    "scheduler": {"TENURE_ELECTION_TTL_S": "2", "TENURE_POOLS_PERIOD_S": "1"},
}
"""Losses within seconds, yet not on each hiccup of a small machine."""

POSTGRES: Final = {"fsync": "off", "shared_buffers": "32MB"}
"""A commit waits until the kernel has it, and a killed server loses nothing of that."""

LINES_SHOWN: Final = 150


class RunningSuite:
    """A suite under test."""

    def __init__(self, suite: Suite, folder: Path, log: Path) -> None:
        self.suite = suite
        self.folder = folder
        self.log = log
        self.addresses: dict[str, str] = {}

    def connect(self) -> Connection:
        """Return a connection with the operator's key; enter it to use it."""
        return Connection(self.folder)

    def environment(self) -> dict[str, str]:
        """Return what tells a program in any language where admission is, and who it is."""
        return {
            "TENURE_ADMISSION_ADDRESS": self.suite.state.address("admission"),
            "TENURE_API_KEY": self.suite.keys.read("operator"),
            **self.suite.tls_settings("operator"),
        }

    def dsn(self) -> str:
        """Return the address of the suite's database."""
        assert self.suite.postgres is not None
        return self.suite.postgres.dsn(DATABASE)

    def pid(self, name: str) -> int:
        """Return the process id of a service, an agent, `postgres` or `etcd`."""
        if name in ("postgres", "etcd"):
            server = self.suite.postgres if name == "postgres" else self.suite.etcd
            assert server is not None and server.pid is not None, f"{name} does not run"
            return server.pid
        pid = {each.name: each.pid for each in self.suite.processes.status()}[name]
        assert pid is not None, f"{name} does not run"
        return pid

    def runs(self, name: str) -> bool:
        """Say whether a part of the suite runs at this moment."""
        try:
            self.pid(name)
        except AssertionError:
            return False
        return True

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> int:
        """Send a signal to a part of the suite and return the process id it had."""
        pid = self.pid(name)
        os.kill(pid, number)
        return pid

    async def runs_again(self, name: str, after: int, within_s: float = 40.0) -> None:
        """Wait until a part runs under another process id than `after`, and is ready."""

        def again() -> bool:
            if name in ("postgres", "etcd"):
                server = self.suite.postgres if name == "postgres" else self.suite.etcd
                return server is not None and server.pid not in (None, after)
            status = {each.name: each for each in self.suite.processes.status()}[name]
            return status.pid not in (None, after) and status.ready

        await until(again, within_s, f"{name} runs again")

    async def start_mortal_agent(self, name: str) -> None:
        """Start one of the suite's agents anew, so that nothing restarts it when it ends."""
        await self.suite.processes.stop(name)
        await self.suite.processes.start(replace(self.suite.agent(name), restart=False))

    async def start_replica(self, service: str, number: int) -> str:
        """Start a further replica of a service on a port of its own; return its name."""
        name = f"{service}-{number}"
        base = self.suite._service(service)
        port = free_ports((name,))[name]
        address = f"127.0.0.1:{port}"
        environment = {**base.environment, "TENURE_LISTEN": address, "TENURE_INSTANCE": name}
        environment["TENURE_METRICS_LISTEN"] = "127.0.0.1:0"
        await self.suite.processes.start(
            replace(
                base,
                name=name,
                environment=environment,
                ready=grpc_health(address, tls=self.suite.tls("operator")),
                ports=(port,),
            )
        )
        self.addresses[name] = address
        return name

    def client(self, name: str, *, key: str = "operator") -> Client:
        """Return a client of one replica with somebody's key; enter it to use it."""
        address = self.addresses.get(name) or self.suite.state.address(name)
        return connect(address, api_key=self.suite.keys.read(key), tls=self.suite.tls(key))

    def said(self) -> str:
        """Return the end of the log."""
        lines = self.log.read_text(errors="replace").splitlines()
        return "\n".join(lines[-LINES_SHOWN:])


@asynccontextmanager
async def running_suite(
    users: Sequence[str] = (), *, make: Callable[..., Suite] = Suite, **options: Any
) -> AsyncIterator[RunningSuite]:
    """Run a suite for the length of a block; `options` are those of SuiteOptions.

    `users` get keys, too; `make` makes the suite.

    Its folder lies directly below /tmp: the paths of sockets are short, and other users may pass.
    """
    folder = Path(tempfile.mkdtemp(prefix="tenure-suite-", dir="/tmp"))
    _add_users(folder / "keys", users)
    log = folder / "suite.log"
    services = {**FAST, **options.pop("services", {})}
    given = {
        "agents": 4,
        "agent_capacity": "cpu=4,memory=4Gi",
        "log_form": "json",
        "postgres_settings": POSTGRES,
        **options,
    }
    with log.open("w") as target:
        suite = make(
            SuiteOptions(folder, services=services, **given), LogStream(target, render=readable)
        )
        running = RunningSuite(suite, folder, log)
        try:
            await suite.start()
            yield running
        except BaseException:
            print(f"The end of the suite's log:\n{running.said()}", file=sys.stderr)
            raise
        finally:
            await suite.stop()
            keep = os.environ.get("TENURE_TEST_KEEP")
            if not keep:
                await forget(folder)


def _add_users(folder: Path, users: Sequence[str]) -> None:
    folder.mkdir(mode=0o700)
    made = {name: create_key(name, {Role.USER}) for name in users}
    Keyring(entry for _, entry in made.values()).store(folder / "keyring.json")
    for name, (key, _) in made.items():
        write_private(folder / f"{name}.key", key)


async def until(
    condition: Callable[[], bool | Awaitable[bool]], within_s: float, what: str
) -> None:
    """Wait until `condition()` holds; looks every 20 ms and fails with `what` it waited for."""
    deadline = asyncio.get_running_loop().time() + within_s
    while True:
        holds = condition()
        if not isinstance(holds, bool):
            holds = await holds
        if holds:
            return
        if asyncio.get_running_loop().time() > deadline:
            raise AssertionError(f"not within {within_s:g} s: {what}")
        await asyncio.sleep(0.02)
