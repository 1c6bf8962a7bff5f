"""What an agent promises to a registry, over real gRPC with real processes."""

from __future__ import annotations

from pathlib import Path

from tests.support.agents import agent
from tests.support.fake_registry import registry

from tenure.registry.v1.agent_pb2 import Report


async def test_a_command_runs_and_its_exit_code_is_reported(tmp_path: Path) -> None:
    async with registry() as fake, agent(tmp_path, fake.address) as process:
        await fake.connected()
        command_id = fake.start("lease1", "sh", "-c", "echo hello; exit 3")
        ended = await fake.report(Report.KIND_ENDED, "lease1")

        assert [
            (r.kind, r.command_id, r.HasField("exit_code"), r.exit_code, r.reason)
            for r in fake.of("lease1")
        ] == [
            (Report.KIND_STARTED, command_id, False, 0, ""),
            (Report.KIND_ENDED, "", True, 3, "EXITED"),
        ]
        assert ended.sequence == 2
        output = tmp_path / "allocations" / "lease1.1.0" / "output.log"
        assert output.read_bytes() == b"hello\n"
        assert [(line["event"], line["lease"]) for line in process.trail()] == [
            ("start", "lease1"),
            ("end", "lease1"),
        ]
