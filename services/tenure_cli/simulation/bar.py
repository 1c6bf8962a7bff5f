"""A progress bar on stderr, with rate and time left; only where somebody watches."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Final

from tenure_sim.progress import Progress

_PERIOD_S: Final = 0.2
_WIDTH: Final = 30


class Bar:
    """Shows how far a simulation is while the block runs, from a thread of its own."""

    def __init__(self, label: str, total: int, *, shown: bool = True) -> None:
        """Nothing is shown when `shown` is off or stderr is no terminal."""
        self.progress = Progress()
        self._label = label
        self._total = total
        self._shown = shown and sys.stderr.isatty()

    def __enter__(self) -> Progress:
        self._began = time.monotonic()
        if self._shown:
            import threading

            self._over = threading.Event()
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()
        return self.progress

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._shown:
            self._over.set()
            self._thread.join()
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def _run(self) -> None:
        while not self._over.wait(_PERIOD_S):
            sys.stderr.write("\r\x1b[K" + self.line(time.monotonic() - self._began))
            sys.stderr.flush()

    def line(self, elapsed_s: float) -> str:
        """Return the bar as it is after so many seconds."""
        done = self.progress.done
        share = done / self._total if self._total else 1.0
        full = "█" * int(share * _WIDTH)
        rate = done / elapsed_s if elapsed_s > 0 else 0.0
        left = f"{(self._total - done) / rate:,.0f} s left" if rate else "…"
        return (
            f"{self._label}  {full:░<{_WIDTH}} {share:4.0%}  {done:,}/{self._total:,} leases  "
            f"{rate:,.0f}/s  {left}"
        )
