"""The ledger after a restart, or after it was rewritten, says what it said before."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from tenure_agent import ledger as ledgers
from tenure_agent.ledger import Ledger
from tenure_agent.work import Command, Key, Kind, Launch, Observed, Report, State, Verb

_KEYS = [Key(f"lease{n}", attempt, 0) for n in range(3) for attempt in (1, 2)]


def _start(id_: str, key: Key, *words: str) -> Command:
    return Command(id_, Verb.START, "pool/p", 1, "s", key, launch=Launch(words))


def _report(ledger: Ledger, kind: Kind, key: Key, command_id: str = "", **fields) -> Report:
    sequence = ledger.last_sequence + 1
    report = Report(sequence, f"r{sequence}", kind, key, command_id, **fields)
    ledger.report(report)
    return report


def _facts(ledger: Ledger) -> dict[str, object]:
    return {
        "epochs": ledger.epochs,
        "allocations": ledger.allocations,
        "answers": ledger.answers,
        "unacknowledged": ledger.unacknowledged,
        "last_sequence": ledger.last_sequence,
        "living": {each.key for each in ledger.living()},
        "observed": ledger.observed(),
    }


_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("epoch"), st.integers(1, 9)),
        st.tuples(st.sampled_from(["start", "stop", "suspend"]), st.integers(0, 5)),
        st.tuples(st.sampled_from(list(Kind)), st.integers(0, 5)),
        st.tuples(st.just("acknowledge"), st.integers(0, 30)),
    ),
    max_size=40,
)


def _take(ledger: Ledger, number: int, step: tuple[object, int]) -> None:
    what, value = step
    key = _KEYS[value % len(_KEYS)]
    if what == "epoch":
        ledger.raise_epoch("pool/p", value)
    elif what == "acknowledge":
        ledger.acknowledge(value)
    elif isinstance(what, Kind):
        allocation = ledger.allocations.get(key)
        pending = allocation.pending if allocation else []
        _report(ledger, what, key, pending[0][0] if pending else "", exit_code=value)
    elif what == "start":
        if key not in ledger.allocations:
            ledger.accept(_start(f"c{number}", key, "true"))
    else:
        ledger.accept(Command(f"c{number}", Verb(what), "pool/p", 1, "s", key))


@settings(max_examples=60, deadline=None)
@given(_STEPS, st.booleans())
async def test_a_restart_changes_nothing(steps, compacted: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger.open(Path(folder))
        for number, step in enumerate(steps):
            _take(ledger, number, step)
        if compacted:
            await ledger.compact()
        await ledger.durable()
        before = _facts(ledger)
        ledger.close()
        again = Ledger.open(Path(folder))

        assert _facts(again) == before
        again.close()


async def test_bounds_forget_old_ends_but_nothing_unacknowledged(
    tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr(ledgers, "REMEMBERED_MAX", 10)
    ledger = Ledger.open(tmp_path)
    for number in range(30):
        key = Key(f"lease{number}", 1, 0)
        ledger.accept(_start(f"c{number}", key, "true"))
        _report(ledger, Kind.STARTED, key, f"c{number}")
        if number != 3:
            _report(ledger, Kind.ENDED, key, exit_code=0)
        if number == 24:
            ledger.acknowledge(ledger.last_sequence)
    living = Key("lease3", 1, 0)

    assert living in ledger.allocations
    assert len(ledger.allocations) == 15  # ten, and five that came since the acknowledgement
    ledger.acknowledge(ledger.last_sequence)
    assert len(ledger.allocations) == 10
    assert set(ledger.answers) == {f"c{number}" for number in range(20, 30)}
    assert ledger.observed() == [Observed(living, State.RUNNING)]
    assert ledger.of_lease("lease0") == []
    ledger.close()


async def test_the_file_stays_bounded_over_many_leases(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(ledgers, "REMEMBERED_MAX", 10)
    monkeypatch.setattr(ledgers, "GENERATION_BYTES", 20_000)
    ledger = Ledger.open(tmp_path)
    rewritten = 0
    for number in range(300):
        key = Key(f"lease{number}", 1, 0)
        ledger.accept(_start(f"c{number}", key, "true"))
        _report(ledger, Kind.ENDED, key, f"c{number}", exit_code=0)
        ledger.acknowledge(ledger.last_sequence)
        await ledger.durable()
        rewritten += await ledger.compact_if_grown()

    assert rewritten >= 3
    assert (tmp_path / "journal.jsonl").stat().st_size < 40_000
    assert ledger.last_sequence == 300
    ledger.close()
