"""What is hidden in texts that are kept or logged: keys, passwords, values named like secrets."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

HIDDEN: Final = "[hidden]"
_NAME: Final = re.compile(
    r"(^|_)(password|passwd|secret|token|api_key|authorization|dsn|private_key)s?$", re.IGNORECASE
)
_TEXT: Final = re.compile(
    r"(tn[rk]_[a-z0-9.-]+_)[A-Za-z0-9-]{20,}"
    r"|(://[^:/@\s]+:)[^@\s]+@"
    r"|eyJ[\w-]+\.[\w-]+\.[\w-]*"
)
_SIGNS: Final = ("tnr_", "tnk_", "eyJ", "://")
_WORD: Final = r"[\w.-]*(?:password|passwd|passphrase|secret|token|api[_-]?key|credential)[\w-]*"
_GIVEN: Final = re.compile(rf"({_WORD}\s*[=:]\s*|--?{_WORD}\s+)(?:'[^']*'|\"[^\"]*\"|\S+)", re.I)
_HINTS: Final = ("pass", "secret", "token", "api", "credential", *map(str.lower, _SIGNS))
_OPTION: Final = re.compile(rf"--?{_WORD}", re.I)


@dataclass(frozen=True, slots=True)
class Encrypted:
    """Something that only the key of this id opens."""

    key_id: str
    content: bytes


def names_secret(name: str) -> bool:
    """Say whether what stands under a name is a secret."""
    return _NAME.search(name) is not None


def hide_in_text(text: str) -> str:
    """Return a text without secrets of our keys, tokens (JWTs) and passwords of addresses."""
    if any(sign in text for sign in _SIGNS):
        return _TEXT.sub(_hidden, text)
    return text


def hide_in_command(command: list[str]) -> list[str]:
    """Return a program's arguments without what options and variables named like secrets are given.

    These are `--token x`, `--password=x`, `sh -c 'SECRET=x …'`; other secrets are not recognised.
    """
    said = "\0".join(command).lower()
    # Most commands name nothing of the kind, and the expressions cost ten times this look.
    if not any(hint in said for hint in _HINTS):
        return command
    shown: list[str] = []
    follows = False
    for argument in command:
        shown.append(HIDDEN if follows else _GIVEN.sub(rf"\1{HIDDEN}", hide_in_text(argument)))
        follows = _OPTION.fullmatch(argument) is not None
    return shown


def _hidden(match: re.Match[str]) -> str:
    key, address = match.groups()
    return f"{address}{HIDDEN}@" if address else f"{key or ''}{HIDDEN}"
