"""The group of `tenure lease …`, and what its commands share."""

from __future__ import annotations

from collections.abc import Iterable

import click

from tenure.admission.v1 import lease_pb2 as lpb
from tenure_cli import leases
from tenure_cli.output import (
    as_dict,
    print_facts,
    print_json,
    print_messages,
    print_table,
)
from tenure_cli.times import (
    local_now,
    parse_duration,
    parse_instant,
)

STATES = [
    state.removeprefix("STATE_").lower()
    for state in lpb.Lease.State.keys()  # noqa: SIM118  # an enum wrapper, not a dict
    if state != "STATE_UNSPECIFIED"
]


def state_number(name: str) -> lpb.Lease.State.ValueType:
    """Return the number of a state as people say it."""
    return lpb.Lease.State.Value(f"STATE_{name.upper()}")


@click.group()
def lease() -> None:
    """Create, list, watch, wait for, change, cancel and explain leases."""


def show(found: lpb.Lease, output: str) -> None:
    """Print one lease."""
    if output == "json":
        print_json(as_dict(found))
    else:
        print_facts(leases.facts(found))


def show_leases(found: Iterable[lpb.Lease], output: str) -> None:
    """Print leases, a line each."""
    if output == "json":
        print_messages(list(found))
    else:
        print_table(leases.COLUMNS, map(leases.row, found))


def span(text: str) -> int:
    """Return a duration that a person wrote, in milliseconds. Raises click.UsageError."""
    try:
        return parse_duration(text)
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def instant(text: str) -> int:
    """Return an instant that a person wrote, in milliseconds. Raises click.UsageError."""
    try:
        return round(parse_instant(text, local_now()).timestamp() * 1_000)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
