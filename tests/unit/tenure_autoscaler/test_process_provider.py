"""The provider `process`, with real agent processes (whose registry is away)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.suite import until

from tenure_autoscaler.providers import process
from tenure_autoscaler.providers.port import MachineSpec, ProvidedMachine, ProviderRefusedError
from tenure_autoscaler.providers.process import ProcessProvider
from tenure_core.autoscaling.provider_errors import ProviderErrorClass, error_class
from tenure_core.resources import ResourceVector
from tenure_runtime.embedded.detached import FILE, DetachedProcesses, end_all

CPU = ResourceVector({"cpu": 1_500, "memory": 2**30})


class Place:
    """A data folder with keys; each `provider()` is one after a restart of the autoscaler."""

    def __init__(self, folder: Path) -> None:
        self.machines = folder / "machines"
        self.keys = folder / "keys"
        self.keys.mkdir()
        for number in (1, 2, 10):
            (self.keys / f"machine-{number}.key").write_text("tnr_x\n")
        (self.keys / "operator.key").write_text("tnr_y\n")

    def provider(self) -> ProcessProvider:
        return ProcessProvider(self.machines, self.keys, "127.0.0.1:9")


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    made = Place(tmp_path)
    yield made
    await asyncio.to_thread(end_all, made.machines, grace_s=5.0)


def spec(machine: str = "machine-1", generation: int = 1) -> MachineSpec:
    token = f"g.{machine}.{generation}"
    return MachineSpec(machine, "tenure/g", token, "g", "default", CPU, 1)


def provided(machine: str = "machine-1", generation: int = 1) -> ProvidedMachine:
    token = f"g.{machine}.{generation}"
    return ProvidedMachine(token, machine, "tenure/g", token)


def pid_of(place: Place, token: str) -> int:
    return int(json.loads((place.machines / token / FILE).read_text())["pid"])


async def test_the_names_are_those_that_have_keys(place: Place) -> None:
    assert place.provider().capabilities.names == ("machine-1", "machine-2", "machine-10")
    with pytest.raises(ProviderRefusedError) as refused:
        await place.provider().create(spec("machine-3"))
    assert error_class(refused.value.code) is ProviderErrorClass.BAD_REQUEST


async def test_a_machine_is_found_again_and_made_once_for_its_token(place: Place) -> None:
    assert await place.provider().create(spec()) == "g.machine-1.1"
    pid = pid_of(place, "g.machine-1.1")
    again = place.provider()
    assert await again.create(spec()) == "g.machine-1.1"
    assert (await again.list_machines()).machines == (provided(),)
    assert pid_of(place, "g.machine-1.1") == pid
    settings = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    assert {b"TENURE_AGENT_ID=machine-1", b"TENURE_ATTRIBUTES=group=g"} <= set(settings)
    assert b"TENURE_CAPACITY=cpu=1500m,memory=1Gi" in settings
    assert os.getsid(pid) == pid, "it would end with the autoscaler's session"


async def test_a_crash_between_start_and_writing_down_is_healed_by_its_mark(place: Place) -> None:
    await place.provider().create(spec())
    file = place.machines / "g.machine-1.1" / FILE
    written = json.loads(file.read_text())
    file.write_text(json.dumps({**written, "pid": 0, "started_ticks": 0}))
    again = place.provider()
    assert (await again.list_machines()).machines == (provided(),)
    assert json.loads(file.read_text()) == written


async def test_a_removed_machine_ends_and_its_token_is_spent(place: Place) -> None:
    provider = place.provider()
    await provider.create(spec())
    await provider.create(spec("machine-2"))
    await provider.remove("g.machine-1.1")
    await provider.remove("g.machine-9.9")

    async def gone() -> bool:
        return (await provider.list_machines()).machines == (provided("machine-2"),)

    await until(gone, 20, "it ends")
    await provider.remove("g.machine-1.1")
    with pytest.raises(ProviderRefusedError):
        await provider.create(spec())
    assert await provider.create(spec(generation=2)) == "g.machine-1.2"


async def test_one_that_does_not_end_is_made_to(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "STOP_GRACE_S", 0.0)
    provider = place.provider()
    await provider.create(spec())
    pid = pid_of(place, "g.machine-1.1")
    os.kill(pid, signal.SIGSTOP)
    await provider.remove("g.machine-1.1")
    assert (await provider.list_machines()).machines == (provided(),)
    await provider.remove("g.machine-1.1")

    async def gone() -> bool:
        return not (await provider.list_machines()).machines

    await until(gone, 20, "it is killed")


async def test_an_id_that_another_process_has_by_now_is_not_taken_for_it(place: Place) -> None:
    await place.provider().create(spec())
    file = place.machines / "g.machine-1.1" / FILE
    written = json.loads(file.read_text())
    other = {**written, "pid": os.getpid()}
    file.write_text(json.dumps(other))
    processes = DetachedProcesses(place.machines)
    seen = processes.read("g.machine-1.1")
    assert seen is not None and not processes.runs(seen)
    processes.end(seen, grace_s=0.0)
    file.write_text(json.dumps(written))


async def test_folders_of_ended_machines_are_kept_only_for_a_while(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "ENDED_KEPT", 1)
    provider = place.provider()
    for generation in (1, 2, 3):
        await provider.create(spec(generation=generation))
        os.kill(pid_of(place, f"g.machine-1.{generation}"), signal.SIGKILL)

    async def pruned() -> bool:
        await provider.list_machines()
        return [path.name for path in place.machines.iterdir()] == ["g.machine-1.3"]

    await until(pruned, 20, "old folders go")
