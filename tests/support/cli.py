"""The `tenure` command as a person uses it, against a suite of its own."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tenure_cli.embedded.forgetting import forget
from tenure_core.errors import WrongState


class Cli:
    """Runs `tenure` on one data folder. `prefix` goes before it (another user, for example)."""

    def __init__(
        self,
        data: Path,
        *,
        prefix: Sequence[str] = (),
        python: str = sys.executable,
        environment: dict[str, str] | None = None,
    ) -> None:
        self.data = data
        self._prefix = (*prefix, python)
        self._environment = {
            **os.environ,
            "TENURE_DATA": str(data),
            "TZ": "UTC",
            **(environment or {}),
        }

    def command(self, *arguments: str) -> list[str]:
        """Return the whole command line."""
        return [*self._prefix, "-m", "tenure_cli", *arguments]

    def __call__(
        self, *arguments: str, code: int | None = 0, timeout_s: float = 90.0
    ) -> subprocess.CompletedProcess[str]:
        """Run `tenure ARGUMENTS` and return what it said; it must end with `code` (None: any)."""
        done = subprocess.run(
            self.command(*arguments),
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
        said = f"tenure {' '.join(arguments)}\n{done.stdout}{done.stderr}"
        assert code is None or done.returncode == code, f"code {done.returncode}: {said}"
        return done

    def begin(self, *arguments: str) -> subprocess.Popen[str]:
        """Start `tenure ARGUMENTS` and return it while it runs."""
        return subprocess.Popen(
            self.command(*arguments),
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def json(self, *arguments: str, code: int | None = 0) -> Any:
        """Return what a command says as JSON."""
        return json.loads(self(*arguments, "--output", "json", code=code).stdout)

    def create(self, *options: str, run: str = "exit 0") -> str:
        """Create a lease that runs a shell line; return its id."""
        work = ("--", "/bin/sh", "-c", run)
        said = self("lease", "create", "--output", "json", *options, *work).stdout
        return str(json.loads(said)["name"]).removeprefix("leases/")

    def wait(self, lease: str, *states: str, timeout: str = "40s") -> Any:
        """Wait until a lease is in one of the states (or has ended) and return it."""
        wanted = [word for state in states for word in ("--state", state)]
        self("lease", "wait", lease, *wanted, "--timeout", timeout, code=None)
        return self.json("lease", "get", lease)


@contextmanager
def short_folder(name: str) -> Iterator[Path]:
    """A fresh folder directly below /tmp: the paths of sockets stay short."""
    folder = Path(tempfile.mkdtemp(prefix=f"tenure-{name}-", dir="/tmp"))
    try:
        yield folder
    finally:
        # One that another user started keeps its cluster in the folder itself.
        with suppress(WrongState):
            asyncio.run(forget(folder / "data"))
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def up(cli: Cli, *options: str) -> Iterator[Cli]:
    """Have the suite up for the length of a block; nothing of it runs afterwards."""
    cli("up", "--detach", "--quiet", *options, timeout_s=150)
    try:
        yield cli
    finally:
        cli("down", code=None)
