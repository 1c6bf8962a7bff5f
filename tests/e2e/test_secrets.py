"""A secret of a lease reaches its work and is nowhere else: files, database, logs, answers."""

from __future__ import annotations

import hashlib
import json
import tarfile
from pathlib import Path

import pytest
from tests.support.cli import Cli, short_folder, up

from tenure_runtime.sealing import SecretKeys

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SECRET = "correct-horse-4711-battery"
LARGE = "staple-0815-" * 2_600
"""With what stands beside it too large for a message: the guardian gets it through a file."""
SHOW = 'printf %s "$PASSWORD" | sha256sum; printf %s "$LARGE" | sha256sum'


def _holding(folder: Path) -> list[str]:
    """Return the files below a folder that have a secret in them."""
    found = []
    for path in folder.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            if SECRET.encode() in content or LARGE[:24].encode() in content:
                found.append(str(path))
    return found


def test_a_secret_is_in_the_environment_of_the_work_and_nowhere_else() -> None:
    with short_folder("secrets") as folder:
        (folder / "given").write_text(LARGE + "\n")
        suite = Cli(folder / "suite", environment={"PASSWORD": SECRET})
        options = ("--secret", "PASSWORD", "--secret", f"LARGE=@{folder / 'given'}")
        large = ("--env", f"MORE={'y' * 32_000}", "--env", f"YET={'z' * 20_000}")
        with up(suite, "--agents", "2", "--capacity", "cpu=2,memory=1Gi"):
            created = suite("lease", "create", *options, "-o", "json", "--", "/bin/sh", "-c", SHOW)
            lease = json.loads(created.stdout)["name"].removeprefix("leases/")
            done = suite.wait(lease)
            ran = suite("run", *options, *large, "-n", "2", "--", "/bin/sh", "-c", SHOW)
            waits = suite.create("--start", "+1h", *options)
            keys = SecretKeys.load(suite.data / "keys" / "secrets.json")
            said = [
                created.stdout,
                *(
                    suite(*words).stdout
                    for words in (
                        ("lease", "get", lease, "-o", "json"),
                        ("lease", "get", waits),
                        ("lease", "list", "--all", "-o", "json"),
                        ("lease", "explain", waits),
                        ("audit", "list", "-o", "json"),
                        ("trace", lease),
                    )
                ),
            ]
            suite("backup", str(folder / "suite.tar"))
            while_it_runs = _holding(suite.data)
        afterwards = _holding(suite.data)
        with tarfile.open(folder / "suite.tar") as archive:
            archive.extractall(folder / "backup", filter="data")
        backed_up = _holding(folder / "backup")
        refused = suite("run", "--secret", f"PASSWORD={SECRET}", "--", "true", code=2)

    wanted = [hashlib.sha256(value.encode()).hexdigest() for value in (SECRET, LARGE)]
    assert done["state"] == "STATE_DONE"
    assert [line.split()[-2] for line in ran.stdout.splitlines()] == wanted * 2
    assert [text for text in said if SECRET in text or LARGE[:24] in text] == []
    assert '"PASSWORD": "[hidden]"' in said[1]
    assert (while_it_runs, afterwards, backed_up) == ([], [], [])
    assert len(keys.keys) == 1
    assert SECRET not in refused.stdout + refused.stderr
