"""An application for an elastic group: one program, which is master or worker as it is told.

    queue_app.py FOLDER

FOLDER is shared by all machines. Each file in FOLDER/todo is a job; its text says for how many
seconds it works. The master hands jobs out over a socket and moves those that ended to
FOLDER/done, so a new master goes on where the last one was. A job is worked on again if its worker
is lost: jobs must not mind that.

With the agent it meets in TENURE_APPLICATION_DIR: it writes `report.json` twice a second and reads
`order.json`. Nothing but the standard library is used.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

BEAT_S = 0.5
THREADS = 2


class Master:
    """Hands out the files of a folder, each to one worker at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._handed: dict[str, str] = {}
        self._server: asyncio.Server | None = None
        self.members: set[str] = set()
        self.epoch = 0
        self.address = ""

    async def serve(self, epoch: int) -> None:
        """Begin to serve, once."""
        if self._server is None:
            self.epoch = epoch
            self._server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
            host, port = self._server.sockets[0].getsockname()
            self.address = f"{host}:{port}"

    def stop(self) -> None:
        """Serve no more."""
        if self._server is not None:
            self._server.close()
            self._server, self.address = None, ""

    def waiting(self) -> list[str]:
        """Return the jobs that nobody works on; those of lost workers are among them again."""
        self._handed = {job: who for job, who in self._handed.items() if who in self.members}
        jobs = sorted(path.name for path in (self._folder / "todo").iterdir())
        return [job for job in jobs if job not in self._handed]

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ValueError, ConnectionError):
            asked = json.loads(await reader.readline())
            answer = self._handle(asked) if asked["epoch"] == self.epoch else {}
            writer.write(json.dumps(answer).encode() + b"\n")
            await writer.drain()
        writer.close()

    def _handle(self, asked: dict[str, Any]) -> dict[str, Any]:
        if "done" in asked:
            if self._handed.pop(asked["done"], None) == asked["worker"]:
                todo = self._folder / "todo" / asked["done"]
                todo.replace(self._folder / "done" / asked["done"])
            return {}
        waiting = self.waiting() if asked["worker"] in self.members else []
        if not waiting:
            return {}
        self._handed[waiting[0]] = asked["worker"]
        text = (self._folder / "todo" / waiting[0]).read_text()
        return {"job": waiting[0], "seconds": float(text or 1)}


class Worker:
    """Works on what a master hands out, a few jobs at once."""

    def __init__(self) -> None:
        self.running: set[asyncio.Task[None]] = set()
        self.times: list[float] = []

    async def ask_for_work(self, order: dict[str, Any]) -> None:
        """Take jobs until there are none or all threads work."""
        while len(self.running) < THREADS:
            handed = await _ask(order, {})
            if "job" not in handed:
                return
            task = asyncio.create_task(self._work(order, handed["job"], handed["seconds"]))
            self.running.add(task)
            task.add_done_callback(self.running.discard)

    async def _work(self, order: dict[str, Any], job: str, seconds: float) -> None:
        began = time.monotonic()
        await asyncio.sleep(seconds)
        await _ask(order, {"done": job})
        self.times = [*self.times[-19:], time.monotonic() - began]


async def _ask(order: dict[str, Any], what: dict[str, Any]) -> dict[str, Any]:
    """Ask the master of an order; one that does not answer has nothing."""
    host, _, port = order["master_address"].rpartition(":")
    epoch = int(order.get("master_epoch", 0))
    try:
        async with asyncio.timeout(2):
            reader, writer = await asyncio.open_connection(host, int(port))
            asked = {"worker": order["machine"], "epoch": epoch, **what}
            writer.write(json.dumps(asked).encode() + b"\n")
            answer: dict[str, Any] = json.loads(await reader.readline() or b"{}")
            writer.close()
            return answer
    except (OSError, ValueError, TimeoutError):
        return {}


async def run(folder: Path, meeting: Path) -> None:
    """Do as ordered, and say how it is, until killed."""
    for name in ("todo", "done"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    master, worker = Master(folder), Worker()
    while True:
        order = _read(meeting / "order.json")
        started = order.get("kind") == "KIND_START"
        if started and order.get("is_master"):
            master.members = set(order.get("members", []))
            await master.serve(int(order.get("master_epoch", 0)))
            report: dict[str, Any] = {"queue_length": len(master.waiting())}
            report |= {"address": master.address}
        else:
            master.stop()
            if started:
                await worker.ask_for_work(order)
            report = {"threads": THREADS, "in_flight": len(worker.running)}
            if worker.times:
                mean = sum(worker.times) / len(worker.times)
                report["mean_job_duration"] = f"{mean:.3f}s"
        draining = bool(worker.running) and not started
        state = "RUNNING" if started else "SHUTTING_DOWN" if draining else "READY"
        report |= {"state": f"STATE_{state}", "master_epoch": order.get("master_epoch", 0)}
        _write(meeting / "report.json", report)
        await asyncio.sleep(BEAT_S)


def _read(path: Path) -> dict[str, Any]:
    try:
        order: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    return order


def _write(path: Path, report: dict[str, Any]) -> None:
    new = path.with_suffix(".new")
    new.write_text(json.dumps(report))
    new.replace(path)


if __name__ == "__main__":
    asyncio.run(run(Path(sys.argv[1]), Path(os.environ["TENURE_APPLICATION_DIR"])))
