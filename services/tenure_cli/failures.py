"""Errors as one sentence on stderr with their reason code, and as exit codes for scripts.

    0  done
    1  failed unexpectedly, or a lease ended otherwise than it should
    2  the command line is wrong
    3  not found
    4  refused: invalid, or not possible in this state
    5  no capacity, quota or rate left
    6  not allowed, or not known
    7  a service is away
    8  changed meanwhile: read again
    130 interrupted

`tenure run` returns the exit code of what it ran.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Final

import click

from tenure_core.errors import (
    AlreadyExists,
    Conflict,
    DomainError,
    Exhausted,
    Forbidden,
    Invalid,
    NotFound,
    Stale,
    Unauthenticated,
    Unavailable,
    WrongState,
)

EXIT_CODES: Final[dict[type[DomainError], int]] = {
    NotFound: 3,
    Invalid: 4,
    WrongState: 4,
    AlreadyExists: 4,
    Stale: 4,
    Exhausted: 5,
    Unauthenticated: 6,
    Forbidden: 6,
    Unavailable: 7,
    Conflict: 8,
}
INTERRUPTED: Final = 130


class ExitWith(Exception):  # not an error: a way out
    """Ends the program with an exit code, saying nothing more."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def guarded(run: Callable[[], object]) -> int:
    """Run the command line; return the exit code, with errors said in one sentence on stderr."""
    try:
        result = run()
    except ExitWith as wanted:
        return wanted.code
    except click.ClickException as error:
        return _explain_usage(error)
    except (KeyboardInterrupt, click.Abort):
        sys.stderr.write("interrupted\n")
        return INTERRUPTED
    except DomainError as error:
        return explain(error)
    except BrokenPipeError:
        return 0
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        return _say(f"{error.strerror or error}{where}", reason="SYSTEM_ERROR")
    except Exception as error:  # the edge: people get a sentence, not a traceback
        if os.environ.get("TENURE_TRACEBACK"):
            raise
        text = f"{type(error).__name__}: {error}; TENURE_TRACEBACK=1 shows where"
        return _say(f"this is a bug of ours: {text}", reason="INTERNAL")
    return result if isinstance(result, int) else 0


def _explain_usage(error: click.ClickException) -> int:
    """Say in one sentence what is wrong with the command line, and where its help is."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return error.exit_code
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "tenure"
    text = error.format_message().rstrip(".")
    _say(f"{text}; see `{command} --help`", reason="USAGE")
    return error.exit_code


def _say(message: str, *, reason: str) -> int:
    sys.stderr.write(f"tenure: {message} [{reason}]\n")
    return 1


def explain(error: DomainError) -> int:
    """Say an error on stderr, all violations of a request included; return its exit code."""
    sys.stderr.write(f"tenure: {error.message} [{error.reason}]\n")
    if isinstance(error, Invalid) and len(error.violations) > 1:
        for violation in error.violations:
            sys.stderr.write(f"  {violation.field}: {violation.description} [{violation.reason}]\n")
    for kind, code in EXIT_CODES.items():
        if isinstance(error, kind):
            return code
    return 1
