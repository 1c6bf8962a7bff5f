"""Makes requests that nobody would send by mistake: from a message's descriptor and a seed.

Four kinds: a good request with a few fields changed, well typed and odd (names that exist among
texts that break things, limits and their neighbours), either damaged as bytes, and bytes that are
no message at all.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.json_format import ParseDict
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

TEXTS: Final = (
    *(
        "",
        " ",
        "a",
        "default",
        "-",
        ".",
        "..",
        "0",
        "true",
        "null",
        "NaN",
        "é",
        "中文",
        "\u202etxt",
    ),
    *("'; DROP TABLE leases; --", '" OR ""="', "$1", "%s%n%x", "{0.__class__}", "${HOME}"),
    *(
        "../../../../etc/passwd",
        "/etc/passwd",
        "file:///etc/passwd",
        "a/b/c",
        "leases/",
        "\\\\x\\y",
    ),
    *("\x1b[2J\x1b]0;owned\x07", "line\nbreak", "\r\n\r\nGET / HTTP/1.1", "\ttab", "\ufeffbom"),
    *("x" * 63, "x" * 64, "x" * 300, "x" * 70_000, "😀" * 40, "a=b,c=d", "tnr_operator_guess"),
    *("00000000-0000-4000-8000-000000000000", "0b3c1c3e-3b5e-4f0f-9a53-6a1b6a0c7a01", "not-a-uuid"),
    *("cpu=1", "cpu=999999999999999999999", "memory=-1", "priority", "labels.*", "lease.duration"),
)
NUMBERS: Final = (
    *(0, 1, 2, 3, 10, 100, 1_000, 4_000, -1, -2, 255, 65_536, 10**6, 10**9, 10**12),
    *(2**31 - 1, -(2**31), 2**31, 2**53, 2**63 - 1, -(2**63), 2**63 - 1_000),
)
SECONDS: Final = (
    *(0, 1, 5, 60, 3_600, 86_400, 31_536_000, -1, -62_135_596_800, 253_402_300_799),
    *(253_402_300_800, 315_576_000_000, 315_576_000_001, 2**63 - 1, -(2**63), 1_796_000_000),
)
FLOATS: Final = (0.0, 1.0, -1.0, 0.5, 1e308, -1e308, 5e-324, float("inf"), float("nan"))
DEPTH: Final = 4
_LIMITS: Final = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
}


class Maker:
    """Makes requests of one seed. `names` are texts that mean something to the suite under test."""

    def __init__(self, seed: object, names: Sequence[str]) -> None:
        self._rng = random.Random(repr(seed))
        self._texts = (*TEXTS, *names, *names)

    def request(self, descriptor: Any, example: Any = None) -> bytes:
        """Return the bytes of one request of a call that takes `descriptor`."""
        kind = self._rng.random()
        if kind < 0.1:
            return self._rng.randbytes(self._rng.choice((0, 1, 2, 8, 64, 4_096)))
        message = GetMessageClass(descriptor)()
        if example is not None and self._rng.random() < 0.6:
            ParseDict(example, message)
            for _ in range(self._rng.choice((0, 1, 1, 2, 4))):
                self._change(message)
        else:
            self._fill(message, DEPTH, self._rng.choice((0.15, 0.5, 0.9)))
        data = message.SerializeToString()
        return self._damaged(data) if kind < 0.25 else data

    def _change(self, message: Message) -> None:
        """Change one field of the message, or of a message somewhere in it."""
        within = [
            inner
            for field, value in message.ListFields()
            if field.message_type is not None and not field.message_type.GetOptions().map_entry
            for inner in (value if field.is_repeated else [value])
        ]
        if within and self._rng.random() < 0.7:
            self._change(self._rng.choice(within))
            return
        fields: list[Any] = list(message.DESCRIPTOR.fields)
        if not fields:
            return
        field = self._rng.choice(fields)
        if self._rng.random() < 0.3 or field.is_repeated:
            message.ClearField(field.name)
        self._set(message, field, 2, 0.5)

    def fill(self, message: Message, share: float = 0.5) -> None:
        """Set about so many of the message's fields, and of those within, to anything."""
        self._fill(message, DEPTH, share)

    def _damaged(self, data: bytes) -> bytes:
        damaged = bytearray(data)
        for _ in range(self._rng.randint(1, 4)):
            at = self._rng.randrange(len(damaged) + 1)
            match self._rng.randrange(4):
                case 0 if at < len(damaged):
                    damaged[at] ^= 1 << self._rng.randrange(8)
                case 1:
                    del damaged[at:]
                case 2:
                    damaged[at:at] = self._rng.randbytes(self._rng.randint(1, 8))
                case _:
                    damaged[at:at] = damaged[: self._rng.randrange(len(damaged) + 1)][:1_000]
        return bytes(damaged)

    def _fill(self, message: Message, depth: int, share: float) -> None:
        for field in message.DESCRIPTOR.fields:
            if self._rng.random() < share:
                self._set(message, field, depth, share)

    def _set(self, message: Message, field: Any, depth: int, share: float) -> None:
        inner = getattr(message, field.name)
        entry = field.message_type
        if entry is not None and entry.GetOptions().map_entry:
            self._fill_map(inner, entry, depth, share)
        elif field.is_repeated:
            for _ in range(self._count()):
                if entry is None:
                    inner.append(self._scalar(field))
                elif depth:
                    self._message(inner.add(), depth, share)
        elif entry is None:
            setattr(message, field.name, self._scalar(field))
        elif depth:
            inner.SetInParent()
            self._message(inner, depth, share)

    def _fill_map(self, entries: Any, entry: Any, depth: int, share: float) -> None:
        key, value = entry.fields_by_name["key"], entry.fields_by_name["value"]
        for _ in range(self._count()):
            if value.message_type is None:
                entries[self._scalar(key)] = self._scalar(value)
            elif depth:
                self._message(entries[self._scalar(key)], depth, share)

    def _message(self, message: Message, depth: int, share: float) -> None:
        if message.DESCRIPTOR.full_name in (
            "google.protobuf.Timestamp",
            "google.protobuf.Duration",
        ):
            span: Any = message
            span.seconds = self._rng.choice(SECONDS)
            span.nanos = self._rng.choice((0, 0, 0, 1, 999_999_999, -1, 1_000_000_000))
        else:
            self._fill(message, depth - 1, share)

    def _count(self) -> int:
        return self._rng.choice((0, 1, 1, 2, 3, 3, 120))

    def _scalar(self, field: Any) -> Any:
        if field.enum_type is not None:
            known = [value.number for value in field.enum_type.values]
            return self._rng.choice((*known, *known, -1, 99, 2**31 - 1))
        if field.type == FieldDescriptor.TYPE_BYTES:
            return self._rng.randbytes(self._rng.choice((0, 1, 16, 300)))
        if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
            return self._rng.choice(self._texts)
        if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
            return self._rng.random() < 0.5
        if field.cpp_type in _LIMITS:
            low, high = _LIMITS[field.cpp_type]
            return min(max(self._rng.choice(NUMBERS), low), high)
        return self._rng.choice(FLOATS[:5] if field.type == FieldDescriptor.TYPE_FLOAT else FLOATS)
