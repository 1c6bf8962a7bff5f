"""Starting and stopping the suite: what stays, what is refused, and as whom it runs."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.cli import Cli, short_folder, up

pytestmark = pytest.mark.timeout(240)

USER = pwd.getpwnam("nobody").pw_uid
"""An account that every machine has (PostgreSQL wants one), without rights of its own."""


def test_state_survives_down_and_up_and_a_second_up_is_refused() -> None:
    with short_folder("updown") as folder:
        cli = Cli(folder / "data")
        with up(cli, "--agents", "1", "--capacity", "cpu=1"):
            done = cli.create("--time", "5s", run="echo kept")
            cli.wait(done)
            long = cli.create("--time", "10m", run="sleep 600")
            cli.wait(long, "active")
            waits = cli.create("--time", "5s")
            again = cli("up", "--detach", code=None)
        taken = json.loads((folder / "data" / "suite.json").read_text())["ports"]["admission"]
        with socket.create_server(("127.0.0.1", taken)):
            blocked = cli("up", "--detach", code=None)
        with (
            socket.create_server(("127.0.0.1", taken)),
            up(cli, "--new-ports"),
        ):
            moved = json.loads((folder / "data" / "suite.json").read_text())["ports"]
        with up(cli):
            kept = [cli.json("lease", "get", lease)["state"] for lease in (done, long, waits)]
            said = cli("lease", "logs", done).stdout
            cli("lease", "cancel", long)
            after = cli.wait(waits)
            drained = cli.create("--time", "60s", run="sleep 3")
            cli.wait(drained, "active")
            cli("down", "--drain")
        down = cli("down")
        trail = (folder / "data" / "agents" / "agent-1" / "trail.jsonl").read_text()
        ends = [line for line in map(json.loads, trail.splitlines()) if line["event"] == "end"]

    assert taken not in moved.values()
    assert again.returncode != 0
    assert "another `tenure up` runs on" in again.stderr
    assert "DATA_FOLDER_IN_USE" in again.stderr
    assert blocked.returncode != 0
    assert f"admission needs port {taken}" in blocked.stderr
    assert "Traceback" not in again.stderr + blocked.stderr
    assert kept[0] == "STATE_DONE"
    assert kept[1] not in ("STATE_DONE", "STATE_FAILED")
    assert said == "kept\n"
    assert after["state"] == "STATE_DONE"
    assert (ends[-1]["lease"], ends[-1]["exit_code"]) == (drained, 0)
    assert "not running" in down.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_an_ordinary_user_starts_it_with_nothing_set_up() -> None:
    with short_folder("user") as folder:
        os.chown(folder, USER, USER)
        environment = {
            "HOME": str(folder),
            "USER": "someone",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        }
        prefix = _as_user()
        python = _python_for(prefix, environment)
        cli = Cli(folder / "data", prefix=prefix, python=python, environment=environment)
        with up(cli, "--agents", "1", "--capacity", "cpu=1"):
            who = cli("run", "-q", "--time", "10s", "--", "id", "-u").stdout
            status = cli("status")
        owners = {path.lstat().st_uid for path in (folder / "data").rglob("*")}

    assert who == f"{USER}\n"
    assert "admission" in status.stdout
    assert owners == {USER}


def _as_user() -> list[str]:
    """Return what runs a command as an ordinary user; skip where there is no such thing."""
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        pytest.skip("no setpriv (util-linux) here")
    return [setpriv, f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]


def _python_for(prefix: list[str], environment: dict[str, str]) -> str:
    """Return a Python of our version that an ordinary user may run: ours may lie in root's home."""
    ours = f"python{sys.version_info.major}.{sys.version_info.minor}"
    again = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import asyncpg, grpc'])"
    probe = f"{again}.check_returncode()"
    for python in (sys.executable, f"/usr/bin/{ours}", f"/usr/local/bin/{ours}"):
        tried = subprocess.run(
            [*prefix, python, "-c", probe],
            capture_output=True,
            cwd="/",
            env={**os.environ, **environment},
        )
        if tried.returncode == 0:
            return python
    pytest.skip("no Python here that an ordinary user may run")


def test_what_root_starts_keeps_its_folder_to_itself(tmp_path: Path) -> None:
    """A home of mode 0700 hides the data from the database's own user, and that must not matter."""
    with short_folder("closed") as folder:
        folder.chmod(0o700)
        cli = Cli(folder / "home" / "data", environment={"HOME": str(folder / "home")})
        (folder / "home").mkdir(mode=0o700)
        with up(cli, "--agents", "1", "--capacity", "cpu=1"):
            assert cli("run", "-q", "--time", "10s", "--", "echo", "hi").stdout == "hi\n"
        assert (folder / "home").stat().st_mode & 0o077 == 0
