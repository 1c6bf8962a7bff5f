"""Puts the agent together and runs it: the only place that knows concrete parts.

The order matters: the data folder is locked (two agents on one folder would be two truths), the
warm process is started before gRPC is touched, what an earlier process left is taken up before the
registry is told anything.
"""

from __future__ import annotations

import asyncio
import fcntl
import gc
import json
import os
import random
import resource
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tenure_agent import capacity
from tenure_agent.application import Application
from tenure_agent.drivers import remains
from tenure_agent.drivers.bare import BareDriver
from tenure_agent.drivers.process import ProcessDriver, ProcessSettings
from tenure_agent.drivers.zygote_link import ZygoteLink
from tenure_agent.executor import Executor, Parts
from tenure_agent.fence import Fence
from tenure_agent.ledger import Ledger
from tenure_agent.limits import Limits
from tenure_agent.limits import find as find_limits
from tenure_agent.outbox import Outbox
from tenure_agent.reporting import Reporting
from tenure_agent.session import Session, SessionParts
from tenure_agent.settings import AgentSettings, SettingRefused
from tenure_agent.spans import Spans
from tenure_agent.stream import Identity
from tenure_runtime.clocks import BootClock, SystemClock
from tenure_runtime.ids import RandomIds
from tenure_runtime.rpc.client import Client, connect
from tenure_runtime.rpc.identity import write_private
from tenure_runtime.sealing import SealingKey
from tenure_runtime.service_info import VERSION
from tenure_runtime.telemetry.logging import get_logger

TRAIL: Final = "trail.jsonl"
SEALING_KEY: Final = "sealing.key"
_TRAIL_BYTES_MAX: Final = 64 * 1024 * 1024
_PRUNE_EVERY_S: Final = 5.0


@dataclass(slots=True)
class Agent:
    """The parts of one agent. Make it with `assemble`, inside a running loop."""

    settings: AgentSettings
    lock: int
    ledger: Ledger
    fence: Fence
    outbox: Outbox
    spans: Spans
    process: ProcessDriver
    executor: Executor
    session: Session
    application: Application | None = None

    async def run(self) -> None:
        """Run until cancelled. A loop that fails ends all: a half agent is worse than none."""
        async with asyncio.TaskGroup() as loops:
            loops.create_task(self.outbox.run())
            loops.create_task(self.executor.run())
            loops.create_task(self.session.run())
            loops.create_task(self._prune())
            loops.create_task(self._announce())
            if self.application is not None:
                loops.create_task(self.application.run())

    async def _announce(self) -> None:
        await self.session.opened.wait()
        if self.settings.ready_file is not None:
            facts = {"pid": os.getpid(), "agent": self.settings.agent_id}
            write_private(self.settings.ready_file, json.dumps(facts) + "\n")

    async def _prune(self) -> None:
        """Keep the folders of ended allocations within their bounds."""
        folder = self.settings.data_dir / "allocations"
        while True:
            await asyncio.sleep(_PRUNE_EVERY_S)
            living = frozenset(each.key.folder for each in self.ledger.living())
            await asyncio.to_thread(
                remains.prune,
                folder,
                living,
                kept_max=self.settings.folders_kept_max,
                kept_s=self.settings.folders_kept_s,
            )
            trail = self.settings.data_dir / TRAIL
            await asyncio.to_thread(remains.turn_trail, trail, bytes_max=_TRAIL_BYTES_MAX)

    async def stop_work(self) -> None:
        """End all work in order and wait until that is reported, or the time for it is up."""
        self.executor.stop_all("AGENT_STOPS")
        with suppress(TimeoutError):
            async with asyncio.timeout(self.settings.stop_wait_s):
                await self.executor.idle()
                await self.outbox.emptied.wait()

    def close(self) -> None:
        """Let go of everything; guardians go on."""
        self.spans.close()
        self.process.close()
        self.fence.close()
        self.ledger.close()
        os.close(self.lock)


def assemble(settings: AgentSettings) -> Agent:
    """Put an agent together over its data folder and take up what is there."""
    folder = settings.data_dir
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = _lock(folder)
    zygote = ZygoteLink(folder / "guardians.log")
    zygote.start()
    incarnation = _incarnation(folder)
    limits = find_limits(settings, incarnation=incarnation)
    _open_way(settings, limits)
    has = capacity.capacity(settings.capacity)
    fence = Fence(folder)
    if fence.rebooted:
        # Another boot's clock says nothing about this one's.
        remains.turn_trail(folder / TRAIL, bytes_max=0)
    ledger = Ledger.open(folder)
    outbox = Outbox(ledger)
    spans = Spans()
    process = ProcessDriver(_process_settings(settings, fence, limits), zygote, tuple(has))
    sealing_key = SealingKey.open(folder / SEALING_KEY)
    identity = Identity(
        id=settings.agent_id,
        incarnation=incarnation,
        version=VERSION,
        pool=settings.pool,
        capacity=dict(has),
        attributes={**capacity.attributes(settings.attributes), **limits.means.facts()},
        suspended_keeps=process.suspended_keeps,
        sealing_key=sealing_key.public,
    )
    prefix = f"{settings.agent_id}.{identity.incarnation}"
    reporting = Reporting(ledger, outbox, SystemClock(), prefix=prefix, spans=spans)
    bare = BareDriver(fence)
    clock = BootClock()
    parts = Parts(ledger, outbox, fence, process, bare, clock, reporting, spans, sealing_key)
    executor = Executor(parts)
    executor.recover()
    application = None
    if settings.application:
        environment = {k: v for k, v in os.environ.items() if k != "TENURE_API_KEY"}
        environment["TENURE_NODE"] = settings.agent_id
        application = Application(settings.application, folder / "application", ledger, environment)
    session = Session(
        SessionParts(
            identity=identity,
            dial=lambda address: _dial(settings, address),
            ledger=ledger,
            executor=executor,
            outbox=outbox,
            fence=fence,
            folder_of=process.folder,
            boot_clock=clock,
            rng=random.Random(),  # noqa: S311 - spreads reconnects, protects nothing
            application=application,
        ),
        settings.registry_address,
    )
    return Agent(
        settings, lock, ledger, fence, outbox, spans, process, executor, session, application
    )


async def serve(settings: AgentSettings) -> None:
    """Run an agent until SIGTERM or SIGINT, then stop as the settings say."""
    agent = assemble(settings)
    _allow_descriptors()
    # What is there now stays: the collector need not go through it again and again.
    gc.collect()
    gc.freeze()
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    try:
        running = loop.create_task(agent.run())
        waiting = loop.create_task(stopping.wait())
        await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if not running.done():
            get_logger().info("process.stopping", work=settings.on_stop)
            if settings.on_stop == "stop":
                await agent.stop_work()
            running.cancel()
        with suppress(asyncio.CancelledError):
            await running
    finally:
        agent.close()
    get_logger().info("process.stopped")


def _allow_descriptors() -> None:
    """Use as many descriptors as we may: one an allocation. Guardians keep the usual limit."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _open_way(settings: AgentSettings, limits: Limits) -> None:
    """Let the user of the work pass through our folders to its own, and see nothing on the way."""
    mode = 0o711 if limits.means.user.ids else 0o700
    allocations = settings.data_dir / "allocations"
    allocations.mkdir(mode=0o700, exist_ok=True)
    for folder in (settings.data_dir, allocations):
        folder.chmod(mode)


def _process_settings(settings: AgentSettings, fence: Fence, limits: Limits) -> ProcessSettings:
    return ProcessSettings(
        node=settings.agent_id,
        allocations=settings.data_dir / "allocations",
        fence_file=fence.path,
        trail_file=settings.data_dir / TRAIL,
        output_bytes_max=settings.output_bytes_max,
        rebooted=fence.rebooted,
        limits=limits,
    )


def _dial(settings: AgentSettings, address: str) -> Client:
    return connect(address, api_key=settings.api_key, tls=settings.tls)


def _lock(folder: Path) -> int:
    """Take the data folder for this process. Raises SettingRefused when another has it."""
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise SettingRefused(f"another agent runs on {folder}") from None
    return descriptor


def _incarnation(folder: Path) -> str:
    """Return the name of this state on disk, made with it: a new disk is a new incarnation."""
    path = folder / "incarnation"
    if not path.exists():
        write_private(path, RandomIds().short(16) + "\n")
    return path.read_text(encoding="ascii").strip()
