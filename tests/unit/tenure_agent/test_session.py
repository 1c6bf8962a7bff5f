"""How the agent keeps its stream: when it leaves, where it goes, how long it waits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from google.protobuf.duration_pb2 import Duration
from tests.support.fake_registry import FakeRegistry, Script, registry

from tenure.registry.v1 import registry_pb2
from tenure_agent.app import Agent, assemble
from tenure_agent.settings import AgentSettings


@asynccontextmanager
async def _running(folder: Path, fake: FakeRegistry) -> AsyncIterator[Agent]:
    """Run an agent inside this process; its warm process is real, nothing is started by it."""
    settings = AgentSettings("n1", fake.address, "tnr_n1_secret", folder)
    agent = assemble(settings)
    task = asyncio.create_task(agent.run())
    try:
        yield agent
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        agent.close()


async def test_a_redirect_is_followed_after_its_delay(tmp_path: Path) -> None:
    async with registry() as first, registry() as second, _running(tmp_path, first):
        await first.connected()
        began = time.monotonic()
        first.send(
            registry_pb2.ConnectResponse(
                redirect=registry_pb2.Redirect(
                    address=second.address, delay_duration=Duration(nanos=300_000_000)
                )
            )
        )
        await second.connected()

        assert time.monotonic() - began >= 0.3
        assert len(first.hellos) == 1


async def test_an_agent_that_was_redirected_finds_home_again(tmp_path: Path) -> None:
    async with registry() as first, registry() as second, _running(tmp_path, first):
        await first.connected()
        redirect = registry_pb2.Redirect(address=second.address)
        first.send(registry_pb2.ConnectResponse(redirect=redirect))
        await second.connected()
        second.hang_up()
        await first.connected(2)


async def test_a_command_before_the_wanted_set_ends_the_stream(tmp_path: Path) -> None:
    class Hasty(FakeRegistry):
        async def Connect(self, requests, context):
            hello = (await anext(aiter(requests))).hello
            self.session = "hasty"
            # Before anything is said: the agent may end the stream at once.
            async with self._heard:
                self.hellos.append(hello)
                self._heard.notify_all()
            yield registry_pb2.ConnectResponse(session=self._terms())
            command = self.command("early")
            command.start.work.command.append("true")
            yield registry_pb2.ConnectResponse(command=command)
            await asyncio.Event().wait()

    async with registry(Script(), Hasty) as fake, _running(tmp_path, fake) as agent:
        await fake.connected(2)

        assert agent.ledger.allocations == {}


async def test_beats_carry_growing_numbers_and_the_load(tmp_path: Path) -> None:
    async with registry(Script(period_ms=30)) as fake, _running(tmp_path, fake):
        await fake.until(lambda: fake.beats >= 4)
        sequences = [beat.sequence for beat in fake.heartbeats[:4]]

        assert sequences == [1, 2, 3, 4]
        assert fake.heartbeats[-1].load.memory_bytes > 0


async def test_a_full_stream_of_commands_never_starves_the_answer_to_the_beat(
    tmp_path: Path,
) -> None:
    """A registry may have thousands of commands ready before it reads the first beat."""
    script = Script(fence_ms=60_000, answers_beats=False)
    async with registry(script) as fake, _running(tmp_path, fake) as agent:
        await fake.connected()
        for number in range(3_000):
            fake.start(f"bare{number}")
        await fake.until(lambda: fake.beats >= 2)
        script.answers_beats = True
        await fake.until(lambda: len(fake.reports) >= 3_000, within_s=60)

        assert len(agent.ledger.living()) == 3_000
