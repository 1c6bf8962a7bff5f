"""Shows a demo while it runs: who waits, what runs where, and how full the nodes have been."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Final

import click
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tenure.admission.v1 import lease_pb2 as lpb
from tenure_cli.demo.submitting import DemoState
from tenure_cli.leases import ENDED, state_name
from tenure_runtime.rpc.wire import bare

PERIOD_S: Final = 0.5
PLAIN_PERIOD_S: Final = 5.0
_BARS: Final = " ▁▂▃▄▅▆▇█"
_WIDTH: Final = 60
_RUNNING: Final = frozenset({lpb.Lease.STATE_ACTIVE, lpb.Lease.STATE_STOPPING})


class Progress:
    """Samples the demo's state and shows it, on a terminal in place, else a line now and then."""

    def __init__(self, state: DemoState, nodes: Sequence[str], slots: int) -> None:
        """`slots` is how many slots one node has."""
        self._state = state
        self._slots = slots
        self._filled: dict[str, list[float]] = {node: [] for node in nodes}

    async def run(self) -> None:
        """Show it until cancelled."""
        if not sys.stdout.isatty():
            await self._plain()
            return
        with Live(console=Console(), refresh_per_second=4) as live:
            while True:
                self._sample()
                live.update(self._picture())
                await asyncio.sleep(PERIOD_S)

    async def _plain(self) -> None:
        while True:
            self._sample()
            click.echo(self._line())
            await asyncio.sleep(PLAIN_PERIOD_S)

    def _sample(self) -> None:
        busy: Counter[str] = Counter()
        for lease in self._state.known.values():
            if lease.state in _RUNNING:
                busy.update(bare(placement.node) for placement in lease.placements)
        for node, history in self._filled.items():
            history.append(min(1.0, busy[node] / self._slots))

    def _line(self) -> str:
        counts = Counter(state_name(lease.state) for lease in self._state.known.values())
        said = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
        present = [history[-1] for history in self._filled.values() if history]
        full = 100 * sum(present) / max(len(present), 1)
        elapsed = time.time() - self._state.began_ms / 1_000  # noqa: TID251  # shown, not decided by
        ended = sum(lease.state in ENDED for lease in self._state.known.values())
        total = len(self._state.leases)
        return f"{elapsed:5.0f} s  {ended}/{total} ended  nodes {full:3.0f} % full  {said}"

    def _picture(self) -> Group:
        table = Table(box=None, pad_edge=False)
        table.add_column("node")
        table.add_column("occupancy over time")
        table.add_column("now", justify="right")
        for node, history in self._filled.items():
            recent = history[-_WIDTH:]
            bars = "".join(_BARS[round(share * (len(_BARS) - 1))] for share in recent)
            now = f"{round(recent[-1] * self._slots)}/{self._slots}" if recent else ""
            table.add_row(node, Text(bars, style="green"), now)
        waiting = [
            bare(lease.name).removeprefix("demo-")
            for lease in self._state.known.values()
            if lease.state in (lpb.Lease.STATE_PENDING, lpb.Lease.STATE_QUEUED)
        ]
        suspended = [
            bare(lease.name).removeprefix("demo-")
            for lease in self._state.known.values()
            if lease.state == lpb.Lease.STATE_SUSPENDED
        ]
        return Group(
            Text(self._line()),
            table,
            Text(f"queue ({len(waiting)}): {' '.join(waiting[:24])}"),
            Text(f"suspended: {' '.join(suspended) or '-'}", style="yellow"),
        )
