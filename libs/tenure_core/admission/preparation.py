"""Completes what a person left open: amounts, shared memory, and the place of each member."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from tenure_core.admission.quantities import parse_bytes, parse_count
from tenure_core.admission.slots import SlotType, Written, guessed_type

SHARED_MEMORY_DEFAULT: Final = Decimal(64 * 2**20)
"""Shared memory when neither the owner nor the image says how much, in bytes."""


@dataclass(frozen=True, slots=True)
class ImageNeeds:
    """What an image declares: its least amounts, and its shared memory as text."""

    least: Mapping[str, Written]
    shared_memory: str | None = None


@dataclass(frozen=True, slots=True)
class MemberGroup:
    """Equal members of one role, as the owner asked for them."""

    role: str
    replicas: int
    asked: Mapping[str, Written]
    shared_memory: Written = None


@dataclass(frozen=True, slots=True)
class PreparedMember:
    """One member: `index` counts from 1 in its role, `rank` from 0 over all.

    `asked` is kept as written; `filled` replaces or adds what was missing or zero.
    """

    role: str
    index: int
    rank: int
    asked: Mapping[str, Written]
    filled: Mapping[str, Decimal]
    shared_memory: Decimal

    @property
    def host_name(self) -> str:
        """Return the name by which the other members reach this one."""
        return f"{self.role}{self.index}"


def prepare(
    groups: Sequence[MemberGroup], image: ImageNeeds, *, cpu: str = "cpu", memory: str = "mem"
) -> list[PreparedMember]:
    """Return every member with its amounts completed.

    Missing or zero cpu and memory become the image's least, memory with the shared memory added;
    other kinds are left alone, and nothing that was asked is raised.
    """
    members: list[PreparedMember] = []
    roles: dict[str, int] = {}
    for group in groups:
        shared = shared_memory(group.shared_memory, image.shared_memory)
        filled = _filled(group.asked, image, shared, cpu, memory)
        for _ in range(group.replicas):
            roles[group.role] = roles.get(group.role, 0) + 1
            members.append(
                PreparedMember(
                    group.role, roles[group.role], len(members), group.asked, filled, shared
                )
            )
    return members


def shared_memory(asked: Written, label: str | None) -> Decimal:
    """Return the shared memory in bytes: the owner's, else the image's label, else 64 MiB.

    A label that is no finite amount counts as none; an owner's raises ValueError.
    """
    if asked is not None:
        return parse_bytes(str(asked))
    try:
        labelled = parse_bytes(label) if label is not None else SHARED_MEMORY_DEFAULT
    except ValueError:
        return SHARED_MEMORY_DEFAULT
    return labelled if labelled.is_finite() else SHARED_MEMORY_DEFAULT


def read_amount(kind: str, written: Written) -> Decimal:
    """Return an amount as written, by the type that its kind's name suggests; None is zero."""
    if written is None:
        return Decimal(0)
    is_bytes = guessed_type(kind) is SlotType.BYTES
    return parse_bytes(str(written)) if is_bytes else parse_count(str(written))


def _filled(
    asked: Mapping[str, Written], image: ImageNeeds, shared: Decimal, cpu: str, memory: str
) -> dict[str, Decimal]:
    filled: dict[str, Decimal] = {}
    if read_amount(cpu, asked.get(cpu)) == 0 and image.least.get(cpu) is not None:
        filled[cpu] = read_amount(cpu, image.least[cpu])
    if read_amount(memory, asked.get(memory)) == 0:
        filled[memory] = read_amount(memory, image.least.get(memory)) + shared
    return filled
