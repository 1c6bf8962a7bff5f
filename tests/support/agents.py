"""Real agent processes for tests: started, killed, paused, and what they left on disk."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from tests.support.cgroups import groups


class AgentProcess:
    """One agent on a data folder; `start` it again after it was killed."""

    def __init__(self, folder: Path, registry_address: str, **settings: str) -> None:
        self.folder = folder
        self._environment = {
            **os.environ,
            "TENURE_AGENT_ID": "n1",
            "TENURE_REGISTRY_ADDRESS": registry_address,
            "TENURE_DATA_DIR": str(folder),
            "TENURE_CAPACITY": "cpu=4,memory=8Gi",
            "TENURE_API_KEY": "tnr_n1_secret",
            **{f"TENURE_{name.upper()}": value for name, value in settings.items()},
        }
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process; it connects by itself."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "agent.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tenure_agent"],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    @property
    def pid(self) -> int:
        """Return its process id."""
        assert self._process is not None
        return self._process.pid

    def signal(self, number: int) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it as a crash would, and wait for it to be gone."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    async def ended(self, within_s: float = 15.0) -> int:
        """Wait for its end and return its exit code."""
        assert self._process is not None
        return await asyncio.to_thread(self._process.wait, within_s)

    def log(self) -> str:
        """Return what it logged."""
        return (self.folder / "agent.log").read_text()

    def trail(self) -> list[dict[str, Any]]:
        """Return the lines of its trail so far."""
        path = self.folder / "trail.jsonl"
        if not path.exists():
            return []
        return [json.loads(line) for line in path.read_text().splitlines()]

    def close(self) -> None:
        """Kill it and whatever its guardians still guard."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        for claim in self.folder.glob("allocations/*/claim"):
            _kill_guardian(claim)
        _discard_groups(self.folder)


def _discard_groups(folder: Path) -> None:
    """Remove what stays if agent and warm process were both killed, and nobody starts again."""
    incarnation = folder / "incarnation"
    if incarnation.exists():
        for group in groups(folder):
            with suppress(OSError):
                group.rmdir()


def _kill_guardian(claim: Path) -> None:
    words = claim.read_text().split()
    if not words or not words[0].isdecimal():
        return
    pid = int(words[0])
    try:
        os.kill(pid, signal.SIGTERM)
        parts = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for child in parts:
            os.kill(int(child), signal.SIGKILL)
    except (ProcessLookupError, FileNotFoundError):
        return


@asynccontextmanager
async def agent(
    folder: Path, registry_address: str, **settings: str
) -> AsyncIterator[AgentProcess]:
    """Run an agent for the length of a block; nothing of it is left afterwards."""
    process = AgentProcess(folder, registry_address, **settings)
    process.start()
    try:
        yield process
    finally:
        process.close()


def process_state(pid: int) -> str:
    """Return the letter of a process's state as /proc has it, X when it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return "X"
    return stat.rpartition(")")[2].split()[0]


def alive(pid: int) -> bool:
    """Say whether a process runs (a zombie does not)."""
    return process_state(pid) not in ("Z", "X")


async def eventually(condition: Any, within_s: float = 15.0) -> None:
    """Wait until `condition()` is true; looks every 10 ms."""
    async with asyncio.timeout(within_s):
        while not condition():
            await asyncio.sleep(0.01)
