"""The store of spans on one machine: what it keeps, how much, and what it survives."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from tenure_runtime.telemetry import metrics
from tenure_runtime.telemetry.span_store import (
    HELD_MAX,
    SPANS_HELD_MAX,
    WAITING_MAX,
    StoreSink,
    read_trace,
)
from tenure_runtime.telemetry.spans import Recording, new_span_id, new_trace_id

LEASE, CYCLE = "a" * 32, "c" * 32
NOW = 4_000_000_000_000_000_000
"""Not old for many years, in nanoseconds."""


def called(trace: str = LEASE, began_ns: int = NOW, **facts: str) -> Recording:
    """Return a span of a served call that has ended."""
    return Recording(
        "tenure.Call", "server", trace, new_span_id(), "", began_ns, began_ns + 5, dict(facts)
    )


def cycle(trace: str, links: list[str]) -> list[Recording]:
    """Return the ended spans of a cycle, its inner one first."""
    root = Recording("scheduler.cycle", "internal", trace, "1" * 16, "", NOW + 10, NOW + 20)
    inner = Recording(
        "scheduler.commit", "internal", trace, "2" * 16, "1" * 16, NOW + 11, NOW + 19, root=root
    )
    inner.links = links
    return [inner, root]


def stored(path: Path, *spans: Recording, **limits: float) -> None:
    sink = StoreSink(path, "admission", **{k: int(v) for k, v in limits.items()})
    for span in spans:
        sink(span)
    sink.close()


def test_a_trace_is_read_with_the_cycles_that_it_is_linked_to(tmp_path: Path) -> None:
    path = tmp_path / "spans.sqlite"
    own = called(state="DONE")
    inner, root = cycle(CYCLE, [own.traceparent])
    own.links = [root.traceparent]
    stored(path, own, inner, root, called(trace="d" * 32))
    found = read_trace(path, LEASE)
    assert [(each.trace, each.name, each.service) for each in found] == [
        (LEASE, "tenure.Call", "admission"),
        (CYCLE, "scheduler.cycle", "admission"),
        (CYCLE, "scheduler.commit", "admission"),
    ]
    assert found[0].attributes == {"state": "DONE"} and found[0].links == (root.traceparent,)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_cycle_that_touched_nothing_is_not_kept_but_a_failed_one_is(tmp_path: Path) -> None:
    path = tmp_path / "spans.sqlite"
    failed = cycle("e" * 32, [])
    failed[0].failure = "Unavailable"
    stored(path, called(), *cycle(CYCLE, []), *failed)
    assert read_trace(path, CYCLE) == []
    assert len(read_trace(path, "e" * 32)) == 2


def test_the_oldest_spans_go_when_there_are_too_many(tmp_path: Path) -> None:
    path = tmp_path / "spans.sqlite"
    stored(path, *(called(began_ns=NOW + number) for number in range(20)), spans_max=5)
    assert [each.began_ns - NOW for each in read_trace(path, LEASE)] == [15, 16, 17, 18, 19]


def test_spans_that_are_too_old_go(tmp_path: Path) -> None:
    path = tmp_path / "spans.sqlite"
    stored(path, called(began_ns=1), called(), age_max_s=60)
    assert len(read_trace(path, LEASE)) == 1


def test_a_file_that_is_full_loses_spans_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "spans.sqlite"
    lost = sum(metrics.SPANS_DROPPED.values.values())
    stored(path, *(called(text="x" * 250) for _ in range(2_000)), bytes_max=100_000)
    assert path.stat().st_size <= 100_000
    assert sum(metrics.SPANS_DROPPED.values.values()) - lost == 2_000


def test_what_comes_faster_than_it_is_written_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StoreSink, "_run", lambda self: None)
    sink = StoreSink(tmp_path / "spans.sqlite", "admission")
    lost = sum(metrics.SPANS_DROPPED.values.values())
    for _ in range(WAITING_MAX + 7):
        sink(called())
    assert len(sink._waiting) == WAITING_MAX
    assert sum(metrics.SPANS_DROPPED.values.values()) - lost == 7


def test_loops_that_never_end_hold_a_bounded_number_of_spans(tmp_path: Path) -> None:
    sink = StoreSink(tmp_path / "spans.sqlite", "admission")
    for _ in range(HELD_MAX + 5):
        sink(cycle(new_trace_id(), [])[0])
    for _ in range(SPANS_HELD_MAX + 5):
        sink(cycle(CYCLE, [])[0])
    assert len(sink._held) == HELD_MAX
    assert max(map(len, sink._held.values())) == SPANS_HELD_MAX


def test_a_damaged_file_stops_nobody_and_is_told_to_its_reader(tmp_path: Path) -> None:
    path = tmp_path / "spans.sqlite"
    path.write_bytes(b"no database at all" * 1_000)
    stored(path, called())
    with pytest.raises(OSError, match="cannot be read"):
        read_trace(path, LEASE)


def test_where_nothing_was_stored_the_reader_is_told(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_trace(tmp_path / "spans.sqlite", LEASE)
