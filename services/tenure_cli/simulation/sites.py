"""The site of a simulation, as the command line gives it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click

from tenure_core.errors import Invalid, NotFound, Violation
from tenure_core.resources import ResourceVector, is_kind, parse_quantity
from tenure_sim.site import Site


def site_of(
    nodes: int | None,
    cpu: str | None,
    memory: str | None,
    resource: Sequence[str],
    file: Path | None,
) -> Site | None:
    """Return the site that the options describe, None when they describe none.

    Raises click.UsageError for options that contradict each other, Invalid for a bad file.
    """
    named = cpu is not None or memory is not None or bool(resource)
    if file is not None:
        if nodes is not None or named:
            raise click.UsageError("--site excludes --nodes, --cpu, --memory and --resource")
        return read_site(file)
    if nodes is None:
        if named:
            raise click.UsageError("--cpu, --memory and --resource go with --nodes")
        return None
    return Site.of_nodes(nodes, _amounts(cpu, memory, resource))


def read_site(file: Path) -> Site:
    """Return the site of a JSON file: `{"nodes": [{"count": 4, "amounts": {"cpu": "8"}}]}`."""
    from tenure_sim.traces_json_site import site_of_json

    try:
        return site_of_json(json.loads(file.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise NotFound("SITE_NOT_FOUND", f"there is no file {file}") from None
    except (OSError, ValueError) as error:
        raise Invalid([Violation(file.name, "BAD_SITE", f"no JSON: {error}")], "BAD_SITE") from None


def slot_of(text: str) -> ResourceVector:
    """Return what one processor of a trace stands for."""
    try:
        slot = ResourceVector.parse(text)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if not slot:
        raise click.UsageError("a slot has at least one kind of resource")
    return slot


def _amounts(cpu: str | None, memory: str | None, resource: Sequence[str]) -> ResourceVector:
    texts = {"cpu": cpu or "1"}
    if memory is not None:
        texts["memory"] = memory
    for text in resource:
        kind, equals, value = text.partition("=")
        if not equals or not is_kind(kind):
            raise click.UsageError(f"--resource is KIND=AMOUNT, not {text!r}")
        texts[kind] = value
    try:
        return ResourceVector({kind: parse_quantity(kind, text) for kind, text in texts.items()})
    except ValueError as error:
        raise click.UsageError(str(error)) from None
