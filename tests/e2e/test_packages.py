"""The packages install into an empty environment of every Python that is here, and do the job."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from tests.tidy.source_reasons import REPOSITORY

pytestmark = pytest.mark.slow
VERSIONS = ("3.11", "3.12", "3.13")


def interpreter(version: str) -> str | None:
    """Return a Python of a version: this one, one on the path, or one that pyenv has."""
    if sys.version_info[:2] == tuple(map(int, version.split("."))):
        return sys.executable
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = sorted(pyenv.glob(f"{version}.*/bin/python"))
    candidates = [shutil.which(f"python{version}"), *map(str, reversed(found))]
    for candidate in candidates:
        if candidate and f"Python {version}." in _said(candidate, "--version"):
            return candidate
    return None


def _said(*command: str | Path, **options: object) -> str:
    done = subprocess.run(command, capture_output=True, text=True, **options)  # type: ignore[call-overload]
    text: str = done.stdout + done.stderr
    return text


def _run(*command: str | Path, cwd: Path, data: Path | None = None) -> str:
    environment = {**os.environ, "TENURE_DATA": str(data)} if data else None
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the source distribution, unpack it elsewhere, and build the wheel from that."""
    folder = tmp_path_factory.mktemp("dist")
    build = (sys.executable, "-m", "hatchling", "build", "-d", str(folder))
    _run(*build, "-t", "sdist", cwd=REPOSITORY)
    (source,) = folder.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        archive.extractall(folder, filter="data")
    _run(*build, "-t", "wheel", cwd=folder / source.name.removesuffix(".tar.gz"))
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture(params=VERSIONS)
def installed(request: pytest.FixtureRequest, wheel: Path, tmp_path: Path) -> Path:
    """The `tenure` command of an environment that has the wheel and what it needs, no more."""
    python = interpreter(request.param)
    if python is None:
        pytest.skip(f"no Python {request.param} here")
    _run(python, "-m", "venv", "--clear", "empty", cwd=tmp_path)
    pip = tmp_path / "empty" / "bin" / "pip"
    _run(pip, "install", "--quiet", "--disable-pip-version-check", wheel, cwd=tmp_path)
    return tmp_path / "empty" / "bin" / "tenure"


@pytest.mark.timeout(600)
def test_a_wheel_runs_a_lease_where_nothing_else_is_installed(
    installed: Path, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    up = ("up", "--detach", "--quiet", "--agents", "1", "--capacity", "cpu=2,memory=1Gi")
    assert re.fullmatch(
        r"tenure, version \d+\.\d+\.\d+\n", _run(installed, "--version", cwd=tmp_path)
    )
    _run(installed, *up, cwd=tmp_path, data=data)
    try:
        assert _run(installed, "run", "--", "echo", "held", cwd=tmp_path, data=data) == "held\n"
    finally:
        _run(installed, "down", cwd=tmp_path, data=data)


def test_a_source_distribution_has_what_its_makefile_uses(wheel: Path) -> None:
    (source,) = (path for path in wheel.parent.iterdir() if path.is_dir())
    listed = {"Makefile", "requirements-dev.txt", "tools", "protos", "tests", "docs", "examples"}
    assert listed <= {path.name for path in source.iterdir()}
