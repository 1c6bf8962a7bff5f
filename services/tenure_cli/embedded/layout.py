"""Where an embedded suite keeps its things, and how its clients find it."""

from __future__ import annotations

import contextlib
import json
import os
import random
import socket
import tomllib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from tenure_core.errors import NotFound, WrongState
from tenure_runtime.embedded.folder_lock import FolderLock
from tenure_runtime.rpc.identity import write_private

STATE: Final = "suite.json"
TLS: Final = "tls"
SETTINGS: Final = "settings"
"""Folder of `<service>.toml` and `agent.toml`: knobs for what `tenure up` starts."""
METRICS: Final = "metrics.json"
"""Where Prometheus finds the metrics of the suite (`file_sd_configs`)."""
TRACES: Final = "traces.sqlite"
"""Where the suite's processes keep their spans, for `tenure trace`."""
_KEPT_PORTS: Final = range(20_000, 32_000)
"""Below Linux's usual range of ephemeral ports (32,768 and up), above what is well known."""
SERVICES: Final = ("slottable", "registry", "admission", "scheduler", "autoscaler")
"""In the order of their start: each finds the ones before it."""


def default_data_folder() -> Path:
    """Return $TENURE_DATA, or `tenure` in the user's data folder."""
    named = os.environ.get("TENURE_DATA")
    if named:
        return Path(named).absolute()
    base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "tenure"


def agent_settings(folder: Path) -> dict[str, str]:
    """Return the variables that `agent.toml` stands for: agents read the environment only.

    Raises WrongState SETTINGS_UNREADABLE.
    """
    file = folder / SETTINGS / "agent.toml"
    try:
        said = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise WrongState("SETTINGS_UNREADABLE", f"{file}: {error}") from None
    return {f"TENURE_{name.upper()}": str(value) for name, value in said.items()}


@dataclass(frozen=True, slots=True)
class SuiteState:
    """What is written down about a suite, and stays the same from one `up` to the next.

    `capacity` is what each agent offers; empty for what it finds on the machine. `metrics_ports`
    are those of each service's /metrics; empty when they are not served. `plaintext`: it serves
    without TLS.
    """

    ports: dict[str, int]
    agents: int
    pid: int = 0
    election: str = ""
    capacity: str = ""
    plaintext: bool = False
    metrics_ports: dict[str, int] = field(default_factory=dict)

    def address(self, service: str) -> str:
        """Return host:port of a service."""
        return f"127.0.0.1:{self.ports[service]}"


def read_state(folder: Path) -> SuiteState:
    """Return the state of the suite in a folder. Raises NotFound, WrongState."""
    try:
        return SuiteState(**json.loads((folder / STATE).read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise NotFound(
            "SUITE_NOT_FOUND", f"there is no suite in {folder}; `tenure up` starts one"
        ) from None
    except (ValueError, TypeError):
        raise WrongState(
            "SUITE_STATE_DAMAGED",
            f"{folder / STATE} cannot be read; remove it, and `tenure up` makes a new one",
        ) from None


def write_state(folder: Path, state: SuiteState) -> None:
    """Write the state of a suite in one step."""
    write_private(folder / STATE, json.dumps(asdict(state), indent=2) + "\n")


def suite_runs(folder: Path) -> bool:
    """Say whether somebody holds the folder's lock."""
    lock = FolderLock(folder)
    try:
        lock.take("DATA_FOLDER_IN_USE", "in use")
    except WrongState:
        return True
    lock.release()
    return False


def write_metrics_targets(folder: Path, state: SuiteState) -> None:
    """Write down, for Prometheus, where the services serve their metrics."""
    targets = [
        {"targets": [f"127.0.0.1:{port}"], "labels": {"service": service}}
        for service, port in state.metrics_ports.items()
    ]
    write_private(folder / METRICS, json.dumps(targets, indent=2) + "\n")


def free_ports(names: tuple[str, ...]) -> dict[str, int]:
    """Return a free loopback port for each name.

    A suite keeps its ports for as long as its folder lives. They lie outside the range from which
    the system gives ports to anybody's connections, or one of those would sooner or later hold a
    port when the suite is to start again.
    """
    sockets: dict[str, socket.socket] = {}
    try:
        candidates = iter(random.sample(_KEPT_PORTS, len(_KEPT_PORTS)))
        for name in names:
            sockets[name] = _bound(candidates)
        return {name: each.getsockname()[1] for name, each in sockets.items()}
    finally:
        for each in sockets.values():
            each.close()


def _bound(candidates: Iterator[int]) -> socket.socket:
    for port in candidates:
        with contextlib.suppress(OSError):
            return socket.create_server(("127.0.0.1", port))
    return socket.create_server(("127.0.0.1", 0))  # the system knows of one, or says what is wrong
