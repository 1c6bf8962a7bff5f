"""`tenure config`: what a service's settings would be, started here and now, and whether they hold.

Reads what the service itself would read: the environment, the secrets folder, the settings file.
"""

from __future__ import annotations

import dataclasses
import importlib
import os
from typing import Any

import click

from tenure_cli.embedded.layout import SERVICES
from tenure_cli.failures import ExitWith
from tenure_cli.output import output_option, plain, print_json, print_table

NAMES = (*SERVICES, "agent")


@click.group()
def config() -> None:
    """Show and check the settings that a service would start with, here and now."""


@config.command("show")
@click.argument("service", type=click.Choice(NAMES))
@click.option("--set", "only_set", is_flag=True, help="Only what is not its default.")
@output_option
def show(service: str, output: str, *, only_set: bool) -> None:
    """List every setting of SERVICE: its value, where that comes from, what it means.

    Secrets are not shown. Exit code 4, and every problem, when the service would not start.
    """
    settings, problems = _read(service)
    _refuse(problems)
    rows = [each for each in settings if not only_set or each.origin != "default"]
    if output == "json":
        print_json([{**dataclasses.asdict(each), "variable": each.variable} for each in rows])
        return
    print_table(
        ("VARIABLE", "VALUE", "FROM", "MEANS"),
        [(each.variable, plain(each.value), each.origin, each.description) for each in rows],
    )


@config.command("check")
@click.argument("services", nargs=-1, type=click.Choice(NAMES))
@output_option
def check(services: tuple[str, ...], output: str) -> None:
    """Say whether SERVICES (by default all) would start with these settings; 4 when one would not.

    Values that belong together are compared, unknown keys of the settings file refused, and
    variables that look like a misspelt setting named.
    """
    found = {service: _read(service)[1] for service in services or NAMES}
    if output == "json":
        print_json(found)
    else:
        for service, problems in found.items():
            said = "".join(f"\n  {plain(problem)}" for problem in problems) or " starts"
            click.echo(f"{service}:{said}")
    if any(found.values()):
        raise ExitWith(4)


def _refuse(problems: list[str]) -> None:
    for problem in problems:
        click.echo(plain(problem), err=True)
    if problems:
        raise ExitWith(4)


def _read(service: str) -> tuple[list[Any], list[str]]:
    """Return a service's settings, or why it would not start."""
    from tenure_runtime.settings import SettingsRefused
    from tenure_runtime.settings_origin import settings_in_force

    if service == "agent":
        return _read_agent()
    module = importlib.import_module(f"tenure_{service}.settings")
    try:
        return settings_in_force(getattr(module, f"{service.capitalize()}Settings")), []
    except SettingsRefused as refused:
        return [], str(refused).splitlines()


def _read_agent() -> tuple[list[Any], list[str]]:
    """Return the agent's settings, which it reads in its own way (from the environment only)."""
    from tenure_agent.settings import AgentSettings, SettingRefused
    from tenure_runtime.settings import PREFIX
    from tenure_runtime.settings_origin import DEFAULT, Setting, shown

    try:
        settings = AgentSettings.load()
    except SettingRefused as refused:
        return [], [str(refused)]
    found = []
    for field in dataclasses.fields(settings):
        origin = "environment" if PREFIX + field.name.upper() in os.environ else DEFAULT
        found.append(
            Setting(field.name, shown(field.name, getattr(settings, field.name)), origin, "")
        )
    return found, []
