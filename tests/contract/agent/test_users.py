"""Work runs as the user that the operator named, or not at all. Real processes; needs root."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.agents import agent, alive, eventually
from tests.support.fake_registry import Script, registry

from tenure.registry.v1.agent_pb2 import Report

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can run work as another user")


@pytest.fixture
def data() -> Iterator[Path]:
    """Yield a data folder that every user can reach, outside of /tmp."""
    with tempfile.TemporaryDirectory(dir="/var/lib") as folder:
        os.chmod(folder, 0o755)
        yield Path(folder) / "data"


def _output(data: Path, name: str) -> str:
    return (data / "allocations" / f"{name}.1.0" / "output.log").read_text()


def steady() -> Script:
    """Return a script whose fence never matters here."""
    return Script(fence_ms=20_000, loss_ms=40_000)


@pytest.mark.parametrize("limits", ["auto", "rlimit"])
async def test_work_is_the_user_in_every_id_and_has_no_capability(data: Path, limits: str) -> None:
    settings = {"run_as": "nobody", "limits": limits}
    async with registry(steady()) as fake, agent(data, fake.address, **settings):
        await fake.connected()
        shows = "grep -E '^(Uid|Gid|CapPrm|CapEff)' /proc/self/status; echo $USER; mktemp; pwd"
        fake.start("who", "sh", "-c", f"{shows} > mine; cat mine")
        ended = await fake.report(Report.KIND_ENDED, "who")
        words = _output(data, "who").split()

        assert ended.exit_code == 0, _output(data, "who")
        ids = [words[1:5], words[6:10]]
        assert all(len(set(each)) == 1 and each[0] != "0" for each in ids)
        assert [int(words[11], 16), int(words[13], 16)] == [0, 0]
        folder = data / "allocations" / "who.1.0"
        assert words[14] == "nobody"
        assert words[15].startswith(f"{folder}/tmp/")
        assert words[16] == f"{folder}/work"
        assert fake.hellos[0].attributes["run_as"] == "nobody"


async def test_work_as_a_user_cannot_touch_what_is_the_agents(data: Path) -> None:
    async with registry(steady()) as fake, agent(data, fake.address, run_as="nobody"):
        await fake.connected()
        folder = data / "allocations" / "nosy.1.0"
        tries = [
            f"cat {data}/journal.jsonl",
            f"ls {data}",
            f"ls {data}/allocations",
            f"touch {folder}/result.json",
            f"echo x > {folder}/claim",
        ]
        program = "; ".join(f"({each}) 2>/dev/null && echo {n}" for n, each in enumerate(tries))
        fake.start("nosy", "sh", "-c", f"{program}; kill -9 $PPID 2>/dev/null && echo 5; exit 4")
        ended = await fake.report(Report.KIND_ENDED, "nosy")

        assert (ended.exit_code, ended.reason) == (4, "EXITED")
        assert not (folder / "output.log").exists()


async def test_work_as_a_user_is_suspended_and_killed_by_its_guardian(data: Path) -> None:
    settings = {"run_as": "nobody", "limits": "none"}
    async with registry(steady()) as fake, agent(data, fake.address, **settings) as process:
        await fake.connected()
        fake.start("long", "sh", "-c", "trap '' TERM; sleep 600 & wait", grace_ms=100)
        await fake.report(Report.KIND_STARTED, "long")
        fake.suspend("long")
        await fake.report(Report.KIND_SUSPENDED, "long")
        fake.resume("long")
        await fake.report(Report.KIND_RESUMED, "long")
        fake.stop("long")
        ended = await fake.report(Report.KIND_ENDED, "long")

        assert ended.exit_code == 137
        await eventually(lambda: not alive(process.trail()[0]["pid"]))


async def test_an_agent_that_does_not_know_the_user_does_not_start(data: Path) -> None:
    async with (
        registry(steady()) as fake,
        agent(data, fake.address, run_as="nobody-at-all") as process,
    ):
        assert await process.ended() == 1
        assert "TENURE_RUN_AS names" in process.log()
        assert fake.hellos == []


async def test_a_mounted_tmp_is_the_leases_own_and_unseen_outside(data: Path) -> None:
    settings = {"run_as": "nobody", "private_tmp": "mount"}
    async with registry(steady()) as fake, agent(data, fake.address, **settings):
        await fake.connected()
        mark = f"mark-{os.getpid()}"
        program = f"ls -A /tmp | wc -l; touch /tmp/{mark} && ls /tmp $TMPDIR /var/tmp"
        fake.start("mine", "sh", "-c", program)
        ended = await fake.report(Report.KIND_ENDED, "mine")

        assert ended.exit_code == 0, _output(data, "mine")
        assert _output(data, "mine").split()[0] == "0"
        assert _output(data, "mine").split().count(mark) == 3
        assert not Path("/tmp", mark).exists()
        assert not (data / "allocations" / "mine.1.0" / "tmp").exists()
        assert fake.hellos[0].attributes["private_tmp"] == "mount"
