"""Memory of bodies seen last is bounded, whatever comes."""

from __future__ import annotations

from tenure_admission.recent import BODY_BYTES_MAX, Recent


def test_a_body_is_made_once_and_the_oldest_is_forgotten() -> None:
    made: list[bytes] = []

    def make(body: bytes) -> bytes:
        made.append(body)
        return body * 2

    recent = Recent(make, entries_max=2)

    assert [recent.of(body) for body in (b"a", b"b", b"a", b"c", b"b", b"a")] == [
        b"aa",
        b"bb",
        b"aa",
        b"cc",
        b"bb",
        b"aa",
    ]
    assert made == [b"a", b"b", b"c", b"a"]
    assert len(recent) == 2


def test_large_bodies_are_not_kept() -> None:
    recent = Recent(len)

    assert recent.of(b"x" * (BODY_BYTES_MAX + 1)) == BODY_BYTES_MAX + 1
    assert len(recent) == 0
