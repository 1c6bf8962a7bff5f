"""The literal `etcd3` 0.12.0 and our layer see each other's keys, leases, locks and elections.

It runs in a virtual environment of its own, made on first use below the user's cache folder.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import json
import os
import subprocess
import sys
import venv
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Self

import pytest
import pytest_asyncio

from tenure_runtime.clocks import BootClock
from tenure_runtime.election.elector import Leader
from tenure_runtime.election.etcd import NAME_PREFIX, EtcdElector
from tenure_runtime.election.etcd_client import EtcdClient
from tenure_runtime.election.etcd_connection import EtcdSettings
from tenure_runtime.embedded.etcd import EmbeddedEtcd, find_etcd

pytestmark = [pytest.mark.etcd, pytest.mark.timeout(300)]

REQUIREMENTS = ("etcd3==0.12.0", "protobuf<4")
SCOPE = "pool/gpu"
NAME = NAME_PREFIX + SCOPE


def _peer_python() -> Path:
    """Return the python of the peer's virtual environment, which is made once and kept."""
    mark = hashlib.sha256(" ".join((*REQUIREMENTS, sys.version)).encode()).hexdigest()[:12]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tenure"
    cache.mkdir(parents=True, exist_ok=True)
    folder = cache / f"etcd3-{mark}"
    with (cache / f"etcd3-{mark}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = folder / "installed"
        if not done.exists():
            venv.create(folder, clear=True, with_pip=True)
            # Isolated (-I): what our own environment can import must not count as installed.
            pip = [folder / "bin" / "python", "-I", "-m", "pip", "install", "-q", *REQUIREMENTS]
            made = subprocess.run(pip, capture_output=True, text=True, timeout=240)
            if made.returncode != 0:
                pytest.skip(f"{' '.join(REQUIREMENTS)} cannot be installed: {made.stderr[-300:]}")
            done.touch()
    return folder / "bin" / "python"


class Peer:
    """The etcd3 process, one command at a time."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, endpoint: str) -> Self:
        process = await asyncio.create_subprocess_exec(
            str(_peer_python()),
            "-I",
            str(Path(__file__).with_name("etcd3_peer.py")),
            endpoint,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        return cls(process)

    async def tell(self, *command: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command).encode() + b"\n")
        await self._process.stdin.drain()

    async def hear(self) -> Any:
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), 15)
        assert line, "the peer ended; its error is above"
        return json.loads(line)

    async def ask(self, *command: object) -> Any:
        await self.tell(*command)
        return await self.hear()

    async def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), 2)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()


@pytest_asyncio.fixture
async def etcd(tmp_path: Path) -> AsyncIterator[EmbeddedEtcd]:
    if find_etcd() is None:
        pytest.skip("no etcd program on the PATH (Debian: apt-get install etcd-server)")
    async with EmbeddedEtcd(tmp_path / "etcd") as etcd:
        yield etcd


@pytest_asyncio.fixture
async def peer(etcd: EmbeddedEtcd) -> AsyncIterator[Peer]:
    peer = await Peer.start(etcd.endpoint)
    yield peer
    await peer.stop()


@pytest_asyncio.fixture
async def elector(etcd: EmbeddedEtcd) -> AsyncIterator[EtcdElector]:
    elector = EtcdElector(EtcdSettings((etcd.endpoint,)), ttl_s=5)
    yield elector
    await elector.close()


@pytest_asyncio.fixture
async def client(etcd: EmbeddedEtcd) -> AsyncIterator[EtcdClient]:
    client = EtcdClient(EtcdSettings((etcd.endpoint,)), BootClock())
    yield client
    await client.close()


async def test_the_peer_is_the_literal_etcd3(peer: Peer) -> None:
    etcd3, protobuf = await peer.ask("version")
    assert etcd3 == "0.12.0"
    assert int(protobuf.split(".")[0]) < 4


async def test_etcd3_reads_the_election_and_the_lease_that_we_wrote(
    peer: Peer, elector: EtcdElector
) -> None:
    leadership = await elector.campaign(SCOPE, "10.0.0.1:7000")
    lease = leadership.lease.id
    key = f"{NAME}/{lease:x}"
    assert await peer.ask("candidates", NAME) == [[key, "10.0.0.1:7000", leadership.token, lease]]
    granted_s, left_s, keys = await peer.ask("lease", lease)
    assert (granted_s, keys) == (5, [key])
    assert 0 < left_s <= 5
    await leadership.resign()
    assert await peer.ask("candidates", NAME) == []


async def test_etcd3_sees_a_hand_over_as_it_happens(peer: Peer, elector: EtcdElector) -> None:
    await peer.tell("events", NAME, 3)
    assert await peer.hear() == "watching"
    first = await elector.campaign(SCOPE, "a")
    await first.resign()
    await elector.campaign(SCOPE, "b")
    key = first.key.decode()
    assert await peer.hear() == [
        ["PutEvent", key, "a"],
        ["DeleteEvent", key, ""],
        ["PutEvent", key, "b"],
    ]


async def test_we_wait_for_a_leader_that_etcd3_seated_and_follow_it(
    peer: Peer, elector: EtcdElector
) -> None:
    key, revision = await peer.ask("stand", NAME, "theirs", 20)
    assert await elector.leader(SCOPE) == Leader("theirs", revision)
    waiting = asyncio.create_task(elector.campaign(SCOPE, "ours"))
    await asyncio.sleep(0.5)
    assert not waiting.done()
    listed = [value for _, value, _, _ in await peer.ask("candidates", NAME)]
    assert listed == ["theirs", "ours"]
    assert await peer.ask("withdraw", key)
    leadership = await asyncio.wait_for(waiting, 2)
    assert leadership.token > revision
    assert leadership.valid()


async def test_a_candidate_of_etcd3_comes_after_ours_and_leads_when_we_resign(
    peer: Peer, elector: EtcdElector
) -> None:
    leadership = await elector.campaign(SCOPE, "ours")
    _, revision = await peer.ask("stand", NAME, "theirs", 20)
    assert await elector.leader(SCOPE) == Leader("ours", leadership.token)
    await leadership.resign()
    assert await elector.leader(SCOPE) == Leader("theirs", revision)


async def test_our_leadership_ends_when_etcd3_deletes_its_key(
    peer: Peer, elector: EtcdElector
) -> None:
    leadership = await elector.campaign(SCOPE, "ours")
    assert await peer.ask("delete", leadership.key.decode())
    await asyncio.wait_for(leadership.lost.wait(), 2)
    assert not leadership.valid()


async def test_we_see_and_can_keep_alive_or_end_a_lock_that_etcd3_holds(
    peer: Peer, client: EtcdClient
) -> None:
    key, lease_id = await peer.ask("lock", "nightly", 30)
    (held,) = (await client.range(key.encode())).kvs
    assert held.lease == lease_id
    kept = await client.keep_alive(lease_id)
    assert kept is not None
    assert (kept.id, kept.ttl_s) == (lease_id, 30)
    assert await peer.ask("release", "nightly")
    assert list((await client.range(key.encode())).kvs) == []

    key, lease_id = await peer.ask("lock", "nightly", 30)
    await client.revoke(lease_id)
    assert list((await client.range(key.encode())).kvs) == []
