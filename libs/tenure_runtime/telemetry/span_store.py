"""Keeps spans in one SQLite file on this machine, so that a trace can be seen with nothing else.

Decides how much is kept: so many spans for so long, in a file that cannot grow past a size. All
processes of a suite write to the same file, each from a thread of its own in short transactions;
what cannot be written, or comes faster than it is written, is dropped and counted. Runs of loops
and cycles that touched no lease are not worth keeping and are left out.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tenure_runtime.telemetry import metrics
from tenure_runtime.telemetry.spans import Attribute, Recording

SPANS_MAX: Final = 100_000
AGE_MAX_S: Final = 24 * 3_600
FILE_BYTES_MAX: Final = 128 * 1024 * 1024
WAITING_MAX: Final = 10_000
"""Spans of one process that wait to be written."""
PERIOD_S: Final = 0.5
HELD_MAX: Final = 200
"""Traces of loops and cycles under way in one process: their worth is known at their end."""
SPANS_HELD_MAX: Final = 500
"""Spans of one such trace."""
_TRIM_EVERY: Final = 20
_BUSY_S: Final = 2.0
_PAGE: Final = 4_096
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS spans (
  number INTEGER PRIMARY KEY, trace TEXT NOT NULL, id TEXT NOT NULL, parent TEXT NOT NULL,
  service TEXT NOT NULL, name TEXT NOT NULL, kind TEXT NOT NULL,
  began_ns INTEGER NOT NULL, ended_ns INTEGER NOT NULL,
  failure TEXT NOT NULL, attributes TEXT NOT NULL, links TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS spans_trace ON spans (trace);
"""
_COLUMNS: Final = (
    "trace, id, parent, service, name, kind, began_ns, ended_ns, failure, attributes, links"
)
_INSERT: Final = f"INSERT INTO spans ({_COLUMNS}) VALUES ({', '.join('?' * 11)})"  # noqa: S608  # constants
LINKED_MAX: Final = 200
SHOWN_MAX: Final = 5_000


@dataclass(frozen=True, slots=True)
class StoredSpan:
    """One span as it was stored."""

    trace: str
    id: str
    parent: str
    service: str
    name: str
    kind: str
    began_ns: int
    ended_ns: int
    failure: str
    attributes: Mapping[str, Attribute]
    links: tuple[str, ...]


class StoreSink:
    """Writes the spans of one process to the store. The thread starts with the first span."""

    def __init__(
        self,
        path: Path,
        service: str,
        *,
        spans_max: int = SPANS_MAX,
        age_max_s: float = AGE_MAX_S,
        bytes_max: int = FILE_BYTES_MAX,
    ) -> None:
        self._path, self._service = path, service
        self._spans_max, self._age_max_s, self._bytes_max = spans_max, age_max_s, bytes_max
        self._waiting: deque[Recording] = deque()
        self._held: OrderedDict[str, list[Recording]] = OrderedDict()
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._batches = 0

    def __call__(self, span: Recording) -> None:
        """Take a span that has ended."""
        root = span.root or span
        if root.kind != "internal" or root.parent:
            self._take([span])
            return
        held = self._held.setdefault(span.trace, [])
        if len(held) < SPANS_HELD_MAX:
            held.append(span)
        while len(self._held) > HELD_MAX:
            self._held.popitem(last=False)
        if span is root:
            self._held.pop(span.trace, None)
            if any(each.links or each.failure for each in held):
                self._take(held)

    def _take(self, spans: Iterable[Recording]) -> None:
        for span in spans:
            if len(self._waiting) >= WAITING_MAX:
                metrics.SPANS_DROPPED.add(1)
                continue
            self._waiting.append(span)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="span-store", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Write what is left. Blocks for a few seconds at most."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(2 * _BUSY_S)

    def _run(self) -> None:
        while not self._stop.wait(PERIOD_S):
            self._write()
        self._write()

    def _write(self) -> None:
        rows: list[tuple[str | int, ...]] = []
        while self._waiting and len(rows) < WAITING_MAX:
            rows.append(self._row(self._waiting.popleft()))
        if not rows:
            return
        try:
            with contextlib.closing(self._open()) as database, database:
                database.executemany(_INSERT, rows)
                if self._batches % _TRIM_EVERY == 0:
                    self._trim(database)
            self._batches += 1
        except (sqlite3.Error, OSError):
            # A full disk, a file that is none of ours: spans are not worth a service's life.
            metrics.SPANS_DROPPED.add(len(rows))
            self._batches = 0

    def _row(self, span: Recording) -> tuple[str | int, ...]:
        return (
            *(span.trace, span.id, span.parent, self._service, span.name, span.kind),
            *(span.began_ns, span.ended_ns, span.failure),
            *(json.dumps(span.attributes), json.dumps(span.links)),
        )

    def _open(self) -> sqlite3.Connection:
        # Made before SQLite sees it, which would make it readable for everybody.
        os.close(os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600))
        database = sqlite3.connect(self._path, timeout=_BUSY_S)
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("PRAGMA synchronous=OFF")
        database.execute(f"PRAGMA max_page_count={self._bytes_max // _PAGE}")
        database.executescript(_SCHEMA)
        return database

    def _trim(self, database: sqlite3.Connection) -> None:
        """Forget what is too old, and the oldest of what is too much."""
        before_ns = time.time_ns() - int(self._age_max_s * 1e9)
        database.execute(
            "DELETE FROM spans WHERE number <= (SELECT max(number) FROM spans) - ? OR ended_ns < ?",
            (self._spans_max, before_ns),
        )


def read_trace(path: Path, trace: str) -> list[StoredSpan]:
    """Return the spans of one trace, and of the traces that its spans link to, oldest first.

    Raises FileNotFoundError where nothing was ever stored, and OSError for a file that is not one.
    """
    if not path.exists():
        raise FileNotFoundError(path)
    try:
        with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as database:
            own = _read(database, [trace])
            linked = {link[3:35] for each in own for link in each.links} - {trace}
            return own + _read(database, sorted(linked)[:LINKED_MAX])
    except sqlite3.Error as error:
        raise OSError(f"{path} cannot be read: {error}") from error


def _read(database: sqlite3.Connection, traces: Sequence[str]) -> list[StoredSpan]:
    marks = ", ".join("?" * len(traces))
    # Only question marks are put in.
    wanted = f"SELECT {_COLUMNS} FROM spans WHERE trace IN ({marks})"  # noqa: S608
    rows = database.execute(
        f"{wanted} ORDER BY began_ns, number LIMIT ?", (*traces, SHOWN_MAX)
    ).fetchall()
    return [_stored(row) for row in rows]


def _stored(row: Sequence[Any]) -> StoredSpan:
    facts = dict(zip(_COLUMNS.split(", "), row, strict=True))
    facts["attributes"] = json.loads(facts["attributes"])
    facts["links"] = tuple(json.loads(facts["links"]))
    return StoredSpan(**facts)
