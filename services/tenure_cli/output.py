"""What commands print: tables for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from google.protobuf.message import Message

Decorated = Callable[..., Any]


def output_option(command: Decorated) -> Decorated:
    """Add `--output table|json`."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(["table", "json"]),
        default="table",
        show_default=True,
        help="How to show the answer.",
    )(command)


def plain(text: str) -> str:
    """Return text without control characters: what users named must not drive a terminal."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def as_dict(message: Message) -> dict[str, Any]:
    """Return a message as JSON can hold it, with the names of the contract."""
    from google.protobuf.json_format import MessageToDict

    return MessageToDict(message, preserving_proto_field_name=True)


def print_json(value: object) -> None:
    """Print JSON, indented when a person looks at it."""
    indent = 2 if sys.stdout.isatty() else None
    click.echo(json.dumps(value, indent=indent, ensure_ascii=False))


def print_json_line(value: object) -> None:
    """Print JSON on one line, at once: one of several that come as they happen."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def print_messages(messages: Iterable[Message]) -> None:
    """Print messages as one JSON list."""
    print_json([as_dict(message) for message in messages])


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table; columns whose name ends in `#` are numbers and stand at the right."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        right = column.endswith("#")
        table.add_column(column.rstrip("#"), justify="right" if right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(plain(str(cell))) for cell in row))
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=200)
    console.print(table)


def print_facts(facts: Iterable[tuple[str, object]]) -> None:
    """Print names and values, one a line; a value that is empty is left out."""
    shown = [(name, plain(str(value))) for name, value in facts if value not in ("", None)]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        click.echo(f"{name.ljust(width)}  {value}")
