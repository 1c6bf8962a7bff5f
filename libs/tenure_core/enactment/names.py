"""The names of a leader's commands.

A name says what it is about, so that a repeat by any leader has the same one, and an answer tells
what it answers.
"""

from __future__ import annotations

from tenure_core.agents.work import Verb


def command_name(lease: str, attempt: int, rank: int, verb: Verb, number: int) -> str:
    """Return the id of a command; `number` tells repeats apart."""
    return f"{lease}.{attempt}.{rank}.{verb.value.lower()}.{number}"


def verb_of(name: str) -> Verb | None:
    """Return what a command of that id asks for, None for an id that is not of this form."""
    parts = name.split(".")
    try:
        return Verb(parts[-2].upper())
    except (IndexError, ValueError):
        return None
