"""The private etcd: same address after a crash, data kept, gone with its parent."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tenure_core.errors import DomainError, NotFound
from tenure_runtime.clocks import BootClock
from tenure_runtime.election.etcd_client import EtcdClient
from tenure_runtime.election.etcd_connection import EtcdSettings
from tenure_runtime.embedded.etcd import EmbeddedEtcd, find_etcd

pytestmark = [
    pytest.mark.etcd,
    pytest.mark.skipif(
        find_etcd() is None,
        reason="no etcd program on the PATH (Debian: apt-get install etcd-server)",
    ),
]


async def _put(endpoint: str, value: bytes) -> None:
    client = EtcdClient(EtcdSettings((endpoint,)), BootClock())
    await client.put(b"k", value)
    await client.close()


async def _values(endpoint: str) -> list[bytes]:
    client = EtcdClient(EtcdSettings((endpoint,)), BootClock())
    try:
        return [kv.value for kv in (await client.range(b"k")).kvs]
    finally:
        await client.close()


async def test_it_keeps_data_and_address_over_a_crash_and_a_restart(tmp_path: Path) -> None:
    async with EmbeddedEtcd(tmp_path / "etcd") as etcd:
        endpoint = etcd.endpoint
        await _put(endpoint, b"kept")
        assert etcd.pid is not None
        os.kill(etcd.pid, signal.SIGKILL)
        assert await etcd.wait_ended() == -signal.SIGKILL
        await etcd.restart()
        assert (etcd.endpoint, await _values(endpoint)) == (endpoint, [b"kept"])
    async with EmbeddedEtcd(tmp_path / "etcd") as etcd:
        assert (etcd.endpoint, await _values(endpoint)) == (endpoint, [b"kept"])


async def test_it_listens_on_loopback_only_and_its_files_are_ours_alone(tmp_path: Path) -> None:
    async with EmbeddedEtcd(tmp_path / "etcd") as etcd:
        listening = [
            each.laddr.ip
            for each in psutil.Process(etcd.pid).net_connections()
            if each.status == psutil.CONN_LISTEN
        ]
        assert listening == ["127.0.0.1"] * 3
        assert (tmp_path / "etcd").stat().st_mode & 0o777 == 0o700


async def test_a_port_that_was_taken_meanwhile_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenure_runtime.embedded.etcd.START_TIMEOUT_S", 10.0)
    async with EmbeddedEtcd(tmp_path / "etcd") as etcd:
        port = int(etcd.endpoint.rpartition(":")[2])
        await _put(etcd.endpoint, b"kept")
    with socket.socket() as thief:
        thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        thief.bind(("127.0.0.1", port))
        thief.listen()
        async with EmbeddedEtcd(tmp_path / "etcd") as etcd:
            assert etcd.endpoint != f"127.0.0.1:{port}"
            assert await _values(etcd.endpoint) == [b"kept"]


async def test_a_second_start_and_a_missing_program_are_refused(tmp_path: Path) -> None:
    async with EmbeddedEtcd(tmp_path / "etcd"):
        with pytest.raises(DomainError) as refused:
            await EmbeddedEtcd(tmp_path / "etcd").start()
        assert refused.value.reason == "ETCD_IN_USE"
    with pytest.raises(NotFound) as missing:
        await EmbeddedEtcd(tmp_path / "none", program=tmp_path / "no-such-etcd").start()
    assert missing.value.reason == "ETCD_NOT_FOUND"


async def test_a_start_that_fails_shows_the_end_of_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenure_runtime.embedded.etcd.START_TIMEOUT_S", 1.0)
    with pytest.raises(DomainError, match="no-such-flag") as refused:
        await EmbeddedEtcd(tmp_path / "etcd", arguments=("--no-such-flag",)).start()
    assert refused.value.reason == "ETCD_NOT_STARTED"


_PARENT = """
import asyncio, sys
from pathlib import Path
from tenure_runtime.embedded.etcd import EmbeddedEtcd

async def main():
    etcd = EmbeddedEtcd(Path(sys.argv[1]))
    await etcd.start()
    print(etcd.endpoint, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.mark.faults
async def test_the_next_start_takes_over_from_a_parent_that_was_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _PARENT, str(tmp_path / "etcd")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        endpoint = parent.stdout.readline().strip()
        await _put(endpoint, b"kept")
        parent.kill()
    async with EmbeddedEtcd(tmp_path / "etcd") as etcd:
        assert (etcd.endpoint, await _values(endpoint)) == (endpoint, [b"kept"])
        await etcd.destroy()
    assert not (tmp_path / "etcd").exists()
    assert shutil.which("etcd") == find_etcd()
