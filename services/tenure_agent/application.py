"""The application on a machine of an elastic group: started with the agent, ended with it.

It and the agent meet in a folder, `TENURE_APPLICATION_DIR`. The application writes `report.json`
(a new file, moved into place) every few seconds; each new one is sent up once. The agent writes
`order.json`: what the application shall be. Decides which orders count: those of an epoch that is
not older than the newest seen, so a deposed leader starts no master.
"""

from __future__ import annotations

import asyncio
import json
import shlex
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from google.protobuf.json_format import MessageToDict, ParseDict, ParseError

from tenure.registry.v1 import application_pb2 as pb
from tenure_agent.ledger import Ledger
from tenure_runtime.embedded.child import ended, spawn, stop
from tenure_runtime.rpc.identity import write_private
from tenure_runtime.telemetry.logging import get_logger

REPORT: Final = "report.json"
ORDER: Final = "order.json"
REPORT_BYTES_MAX: Final = 16_384
END_GRACE_S: Final = 5.0
DIR_VARIABLE: Final = "TENURE_APPLICATION_DIR"


class Application:
    """One application: `run()` in a TaskGroup; the session asks for reports and brings orders."""

    def __init__(
        self, command: str, folder: Path, ledger: Ledger, environment: Mapping[str, str]
    ) -> None:
        self._command = shlex.split(command)
        self._folder = folder
        self._ledger = ledger
        self._environment = environment
        self._sent_ns = 0
        self._ended = False

    async def run(self) -> None:
        """Run the application until cancelled; one that ends is reported as in error."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in (REPORT, ORDER):
            # What an earlier process said or was told is not this one's.
            (self._folder / name).unlink(missing_ok=True)
        with (self._folder / "output.log").open("ab") as output:
            child = spawn(
                self._command,
                output=output,
                on_parent_death=signal.SIGKILL,
                environment={**self._environment, DIR_VARIABLE: str(self._folder)},
                folder=self._folder,
            )
        try:
            while not await ended(child, 3_600):
                pass
            get_logger().warning("application.ended", exit_code=child.returncode)
            self._ended = True
            await asyncio.Event().wait()
        finally:
            await stop(child, [(signal.SIGTERM, END_GRACE_S)])

    def report(self) -> pb.ApplicationReport | None:
        """Return what the application says now; None when it has said nothing new."""
        if self._ended:
            return pb.ApplicationReport(state=pb.ApplicationReport.STATE_ERROR)
        path = self._folder / REPORT
        try:
            facts = path.stat()
            if facts.st_mtime_ns == self._sent_ns or facts.st_size > REPORT_BYTES_MAX:
                return None
            plain = json.loads(path.read_text(encoding="utf-8"))
            report = ParseDict(plain, pb.ApplicationReport(), ignore_unknown_fields=True)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, ParseError) as error:
            get_logger().warning("application.unreadable", error=str(error))
            return None
        self._sent_ns = facts.st_mtime_ns
        if report.state == pb.ApplicationReport.STATE_UNSPECIFIED:
            get_logger().warning("application.unreadable", error="no state that is known")
            return None
        return report

    async def take(self, order: pb.ApplicationOrder) -> None:
        """Hand an order to the application, unless a newer leader's has been seen."""
        if order.epoch < self._ledger.epochs.get(order.scope, 0):
            get_logger().warning("application.stale_order", scope=order.scope, epoch=order.epoch)
            return
        self._ledger.raise_epoch(order.scope, order.epoch)
        await self._ledger.durable()
        text = json.dumps(MessageToDict(order, preserving_proto_field_name=True)) + "\n"
        path = self._folder / ORDER
        with suppress(FileNotFoundError):
            if path.read_text(encoding="utf-8") == text:
                return
        write_private(path, text, durable=False)
