"""The stores that elections are held in, behind one handle for the contract suite."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Protocol

from tenure_core.timebase import Clock
from tenure_runtime.election.elector import Elector
from tenure_runtime.election.etcd import EtcdElector
from tenure_runtime.election.etcd_connection import EtcdSettings
from tenure_runtime.election.fixed import FixedElector, Seats
from tenure_runtime.election.row import RowElector
from tenure_runtime.embedded.etcd import EmbeddedEtcd
from tenure_runtime.embedded.postgres import EmbeddedPostgres

TTL_S = 2


class Store(Protocol):
    """What the suite does to a store."""

    def elector(self) -> Elector: ...

    async def make_silent(self, elector: Elector, scope: str) -> None:
        """Stop the elector from renewing, as if its process were gone."""
        ...

    async def close(self) -> None: ...


class LastingStore(Store, Protocol):
    """A store with processes of its own, which other processes can use too."""

    def elector(self, clock: Clock | None = None, ttl_s: int = TTL_S) -> Elector: ...

    def candidate_command(self, scope: str) -> list[str]: ...

    def rival_command(self, scope: str, seed: int) -> list[str]: ...

    async def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        ...

    async def come_back(self) -> None: ...


class FixedStore:
    def __init__(self) -> None:
        self._seats = Seats()

    def elector(self) -> FixedElector:
        return FixedElector(self._seats)

    async def make_silent(self, elector: Elector, scope: str) -> None:
        await self._seats.take_away(scope)

    async def close(self) -> None:
        pass


_HERE = Path(__file__).parent
_REPOSITORY = _HERE.parents[2]


def elector_of(how: dict[str, str]) -> Elector:
    """Return the elector that a child process was told to use."""
    ttl_s = int(how["ttl_s"])
    if how["kind"] == "row":
        return RowElector(how["dsn"], ttl_s=ttl_s)
    return EtcdElector(EtcdSettings((how["endpoint"],)), ttl_s=ttl_s)


def _child(program: str, **how: object) -> list[str]:
    """Return the command of a child process that finds the test modules as we do."""
    run = (
        f"import runpy, sys; sys.path.insert(0, {str(_REPOSITORY)!r}); "
        "del sys.argv[0]; runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    return [sys.executable, "-c", run, str(_HERE / program), json.dumps(how)]


class RowStoreHandle:
    def __init__(self, postgres: EmbeddedPostgres, dsn: str) -> None:
        self._postgres = postgres
        self._dsn = dsn

    def elector(self, clock: Clock | None = None, ttl_s: int = TTL_S) -> RowElector:
        return RowElector(self._dsn, ttl_s=ttl_s, clock=clock)

    async def make_silent(self, elector: Elector, scope: str) -> None:
        assert isinstance(elector, RowElector) and elector._renewing is not None
        elector._renewing.cancel()

    def candidate_command(self, scope: str) -> list[str]:
        return self._command("candidate.py", scope=scope)

    def rival_command(self, scope: str, seed: int) -> list[str]:
        return self._command("rival.py", scope=scope, seed=seed)

    def _command(self, program: str, **more: object) -> list[str]:
        return _child(program, kind="row", dsn=self._dsn, ttl_s=TTL_S, **more)

    async def kill(self) -> None:
        await _kill(self._postgres)

    async def come_back(self) -> None:
        await self._postgres.restart()

    async def close(self) -> None:
        pass


class EtcdStoreHandle:
    def __init__(self, etcd: EmbeddedEtcd) -> None:
        self.etcd = etcd

    @property
    def settings(self) -> EtcdSettings:
        return EtcdSettings((self.etcd.endpoint,))

    def elector(self, clock: Clock | None = None, ttl_s: int = TTL_S) -> EtcdElector:
        return EtcdElector(self.settings, ttl_s=ttl_s, clock=clock)

    async def make_silent(self, elector: Elector, scope: str) -> None:
        assert isinstance(elector, EtcdElector) and elector._keeper._renewing is not None
        elector._keeper._renewing.cancel()

    def candidate_command(self, scope: str) -> list[str]:
        return self._command("candidate.py", scope=scope)

    def rival_command(self, scope: str, seed: int) -> list[str]:
        return self._command("rival.py", scope=scope, seed=seed)

    def _command(self, program: str, **more: object) -> list[str]:
        return _child(program, kind="etcd", endpoint=self.etcd.endpoint, ttl_s=TTL_S, **more)

    async def kill(self) -> None:
        await _kill(self.etcd)

    async def come_back(self) -> None:
        await self.etcd.restart()

    async def close(self) -> None:
        await self.etcd.stop()


async def _kill(server: EmbeddedEtcd | EmbeddedPostgres) -> None:
    assert server.pid is not None
    os.kill(server.pid, signal.SIGKILL)
    await server.wait_ended()
