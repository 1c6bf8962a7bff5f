"""Secrets that were sealed for an agent: in its work's environment, and not on its disk."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from tests.support.agents import agent
from tests.support.fake_registry import Script, registry

from tenure.registry.v1.agent_pb2 import Report
from tenure_runtime.sealing import SealingKey, seal_for

VALUE = "hunter2-hunter2"
# With a value as long the guardian is told through a file.
LARGE = "0815-4711-" * 7_000
STEADY = Script(fence_ms=20_000, loss_ms=40_000)


def _sealed(public: bytes, lease: str, **values: str) -> bytes:
    return seal_for(public, json.dumps(values).encode(), lease)


def _holding(folder: Path) -> list[str]:
    found = []
    for path in folder.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            if VALUE.encode() in content or LARGE[:40].encode() in content:
                found.append(path.name)
    return found


async def test_secrets_reach_the_work_and_no_file(tmp_path: Path) -> None:
    async with registry(STEADY) as fake, agent(tmp_path, fake.address):
        await fake.connected()
        sealed = _sealed(fake.hellos[0].sealing_key, "lease1", P=VALUE, L=LARGE)
        script = 'printf %s "$P$L" | sha256sum'
        fake.start("lease1", "sh", "-c", script, secrets=("P", "L"), sealed_secrets=sealed)
        ended = await fake.report(Report.KIND_ENDED, "lease1")
        said = (tmp_path / "allocations" / "lease1.1.0" / "output.log").read_text()

        assert ended.exit_code == 0
        assert said.split()[0] == hashlib.sha256(f"{VALUE}{LARGE}".encode()).hexdigest()
        assert _holding(tmp_path) == []
        assert (tmp_path / "sealing.key").stat().st_mode & 0o777 == 0o600


async def test_an_agent_that_restarts_opens_what_was_sealed_before(tmp_path: Path) -> None:
    async with registry(STEADY) as fake, agent(tmp_path, fake.address) as process:
        await fake.connected()
        sealed = _sealed(fake.hellos[0].sealing_key, "lease1", P=VALUE)
        process.kill()
        process.start()
        await fake.connected(2)
        fake.start("lease1", "sh", "-c", 'test -n "$P"', secrets=("P",), sealed_secrets=sealed)

        assert (await fake.report(Report.KIND_ENDED, "lease1")).exit_code == 0
        assert fake.hellos[1].sealing_key == fake.hellos[0].sealing_key


@pytest.mark.parametrize("wrong", ["missing", "another key", "another lease", "another name"])
async def test_work_whose_secrets_cannot_be_opened_does_not_start(
    tmp_path: Path, wrong: str
) -> None:
    async with registry(STEADY) as fake, agent(tmp_path, fake.address):
        await fake.connected()
        own = fake.hellos[0].sealing_key
        sealed = {
            "missing": b"",
            "another key": _sealed(SealingKey.made().public, "lease1", P=VALUE),
            "another lease": _sealed(own, "lease2", P=VALUE),
            "another name": _sealed(own, "lease1", Q=VALUE),
        }[wrong]
        fake.start("lease1", "touch", "here", secrets=("P",), sealed_secrets=sealed)
        refused = await fake.report(Report.KIND_REFUSED, "lease1")

        assert refused.reason == "SECRETS_NOT_OPENED"
        assert VALUE not in refused.message
        assert list(tmp_path.glob("allocations/lease1*/**/here")) == []
