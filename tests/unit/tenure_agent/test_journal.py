"""The journal keeps what it called durable, whatever a crash leaves of its tail."""

from __future__ import annotations

import asyncio
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tenure_agent.journal import NAME, Journal, decode, encode

_LEAVES = st.none() | st.booleans() | st.integers() | st.text()
_RECORDS = st.lists(
    st.builds(lambda kind, rest: [kind, *rest], st.text(), st.lists(_LEAVES, max_size=3)),
    max_size=8,
)


@given(_RECORDS, st.data())
def test_a_torn_tail_loses_only_the_unfinished_record(records, data) -> None:
    content = b"".join(encode(record) for record in records)
    cut = data.draw(st.integers(0, len(content)))
    kept, good = decode(content[:cut])

    assert kept == records[: len(kept)]
    assert good <= cut
    assert b"".join(encode(record) for record in kept) == content[:good]
    # Nothing whole is lost: the next record did not fit before the cut.
    if len(kept) < len(records):
        assert good + len(encode(records[len(kept)])) > cut


@given(_RECORDS.filter(bool), st.data())
def test_a_damaged_byte_never_becomes_another_record(records, data) -> None:
    content = bytearray(b"".join(encode(record) for record in records))
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= data.draw(st.integers(1, 255))
    kept, _ = decode(bytes(content))

    assert kept == records[: len(kept)]
    assert len(kept) < len(records)


async def test_what_is_durable_is_there_for_the_next_to_open(tmp_path: Path) -> None:
    journal, records = Journal.open(tmp_path)
    assert records == []
    for number in range(10):
        journal.append(["n", number])
    await asyncio.gather(journal.durable(), journal.durable())
    journal.append(["never", "flushed"])
    journal.close()

    _, records = Journal.open(tmp_path)
    assert records == [["n", number] for number in range(10)]


async def test_appending_goes_on_cleanly_after_a_torn_record(tmp_path: Path) -> None:
    journal, _ = Journal.open(tmp_path)
    journal.append(["whole"])
    await journal.durable()
    journal.close()
    with (tmp_path / NAME).open("ab") as file:
        file.write(encode(["torn"])[:-3])

    journal, records = Journal.open(tmp_path)
    assert records == [["whole"]]
    journal.append(["next"])
    await journal.durable()
    journal.close()
    _, records = Journal.open(tmp_path)
    assert records == [["whole"], ["next"]]


async def test_a_new_generation_replaces_the_old_and_keeps_what_came_meanwhile(
    tmp_path: Path,
) -> None:
    journal, _ = Journal.open(tmp_path)
    for number in range(100):
        journal.append(["old", number])
    await journal.durable()
    replacing = asyncio.create_task(journal.replace(lambda: [["state", 100]]))
    await asyncio.sleep(0)
    journal.append(["meanwhile"])
    await replacing
    await journal.durable()
    journal.close()

    _, records = Journal.open(tmp_path)
    assert records == [["state", 100], ["meanwhile"]]


async def test_what_is_appended_while_a_generation_waits_for_a_flush_is_not_lost(
    tmp_path: Path,
) -> None:
    journal, _ = Journal.open(tmp_path)
    truth = [["n", 0]]
    journal.append(truth[0])
    flushing = asyncio.create_task(journal.durable())
    await asyncio.sleep(0)
    replacing = asyncio.create_task(journal.replace(lambda: truth))
    await asyncio.sleep(0)
    truth.append(["n", 1])
    journal.append(truth[1])
    await asyncio.gather(flushing, replacing)
    await journal.durable()
    journal.close()

    _, records = Journal.open(tmp_path)
    assert records == [["n", 0], ["n", 1]]
