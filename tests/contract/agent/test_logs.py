"""What an agent promises about the output of leases, over real gRPC."""

from __future__ import annotations

from pathlib import Path

from tests.support.agents import agent
from tests.support.fake_registry import FakeRegistry, Script, registry

from tenure.registry.v1 import registry_pb2
from tenure.registry.v1.agent_pb2 import Report


def steady() -> Script:
    """Return a script whose fence never matters here."""
    return Script(fence_ms=20_000, loss_ms=40_000)


def _ask(fake: FakeRegistry, request_id: str, lease: str, **fields: object) -> None:
    request = registry_pb2.LogRequest(log_request_id=request_id, lease=f"leases/{lease}", **fields)
    fake.send(registry_pb2.ConnectResponse(log_request=request))


def _of(fake: FakeRegistry, request_id: str) -> list[registry_pb2.LogChunk]:
    return [chunk for chunk in fake.log_chunks if chunk.log_request_id == request_id]


async def _whole(fake: FakeRegistry, request_id: str) -> bytes:
    await fake.until(lambda: any(chunk.end for chunk in _of(fake, request_id)))
    chunks = _of(fake, request_id)
    position = chunks[0].offset
    for chunk in chunks:
        assert chunk.offset == position
        assert len(chunk.data) <= 65_536
        position += len(chunk.data)
    return b"".join(chunk.data for chunk in chunks)


async def test_a_log_is_sent_from_where_it_is_asked(tmp_path: Path) -> None:
    async with registry(steady()) as fake, agent(tmp_path, fake.address):
        await fake.connected()
        fake.start("talker", "sh", "-c", "head -c 200000 /dev/zero | tr '\\0' x; printf end")
        await fake.report(Report.KIND_ENDED, "talker")
        _ask(fake, "all", "talker", attempt=1)
        _ask(fake, "last", "talker", offset=-3)
        _ask(fake, "middle", "talker", offset=199_998)
        _ask(fake, "none", "nobody")

        assert await _whole(fake, "all") == b"x" * 200_000 + b"end"
        assert await _whole(fake, "last") == b"end"
        assert await _whole(fake, "middle") == b"xxend"
        assert await _whole(fake, "none") == b""
        assert [chunk.reason for chunk in _of(fake, "none")] == ["ALLOCATION_NOT_FOUND"]


async def test_a_followed_log_ends_with_the_work(tmp_path: Path) -> None:
    async with registry(steady()) as fake, agent(tmp_path, fake.address):
        await fake.connected()
        go = tmp_path / "go"
        program = f"echo one; while [ ! -e {go} ]; do sleep 0.02; done; echo two"
        fake.start("slow", "sh", "-c", program)
        await fake.report(Report.KIND_STARTED, "slow")
        _ask(fake, "follow", "slow", follow=True)
        await fake.until(lambda: b"one\n" in b"".join(c.data for c in _of(fake, "follow")))
        assert not any(chunk.end for chunk in _of(fake, "follow"))
        go.touch()

        assert await _whole(fake, "follow") == b"one\ntwo\n"


async def test_a_cancelled_log_request_falls_silent(tmp_path: Path) -> None:
    async with registry(steady()) as fake, agent(tmp_path, fake.address):
        await fake.connected()
        go = tmp_path / "go"
        program = f"echo one; while [ ! -e {go} ]; do sleep 0.02; done; echo two"
        fake.start("slow", "sh", "-c", program)
        await fake.report(Report.KIND_STARTED, "slow")
        _ask(fake, "cancelled", "slow", follow=True)
        await fake.until(lambda: bool(_of(fake, "cancelled")))
        _ask(fake, "cancelled", "slow", cancel=True)
        _ask(fake, "other", "slow", follow=True)
        go.touch()

        assert await _whole(fake, "other") == b"one\ntwo\n"
        assert not any(chunk.end for chunk in _of(fake, "cancelled"))
