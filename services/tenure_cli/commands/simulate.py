"""`tenure simulate`: replays a trace under one policy or several, and says what became of it."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click

from tenure_cli.simulation.policy_words import (
    POLICY_OPTIONS,
    PolicyWords,
    parse_policy,
    policy_options,
    words_of,
)

_COLLECT_EVERY: Final = 200_000
"""A simulation makes few cycles and many values: looking for cycles seldom saves a tenth."""

_FILE: Final = click.Path(path_type=Path)
_MORE: Final = {
    "convert": "Convert a trace: SWF, leases as text or CSV, XML, JSON to XML or JSON.",
    "generate": "Make a trace, by Lublin's model or by a configuration.",
    "annotate": "Make annotations for the leases of a trace, by a configuration.",
    "configs": "Run a configuration of Haizea, or all of a multi-configuration file.",
    "history": "Export what really happened in a pool as a trace.",
}


class _TraceOrCommand(click.Group):
    """A group whose first argument is a trace unless it names one of the commands."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in _MORE and not {"-h", "--help"} & set(args):
            args = ["replay", *args]
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # click's own
        return list(_MORE)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name == "replay":
            return replay
        if cmd_name not in _MORE:
            return None
        from tenure_cli.simulation import commands

        command = getattr(commands, cmd_name)
        assert isinstance(command, click.Command)
        return command

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_usage(ctx.command_path, "TRACE [OPTIONS] | COMMAND …")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        records = [
            record
            for parameter in (*replay.params, *self.get_params(ctx))
            if isinstance(parameter, click.Option)
            and (record := parameter.get_help_record(ctx)) is not None
        ]
        with formatter.section("Options"):
            formatter.write_dl(records)
        with formatter.section("Commands"):
            formatter.write_dl(list(_MORE.items()))


@click.group(cls=_TraceOrCommand)
def simulate() -> None:
    """Replay a workload trace on a simulated clock, by the planner that the live system uses.

    TRACE is a file in the Standard Workload Format, a lease workload (XML or old text), a table of
    leases or a trace of our own, gzipped or not. Nothing live is touched.
    """


@click.command()
@click.argument("trace", type=_FILE)
@click.option("--nodes", type=click.IntRange(1, 1_000_000), help="The site: so many equal nodes.")
@click.option("--cpu", help="Processors a node. Default 1.")
@click.option("--memory", help="Memory a node.")
@click.option("--resource", multiple=True, help="KIND=AMOUNT a node, for any other kind.")
@click.option("--site", type=_FILE, help="The site from a JSON file. Default: what the trace says.")
@click.option("--slot", default="cpu=1", show_default=True, help="What a processor of a trace is.")
@policy_options
@click.option("--compare", help="Several policies side by side: easy,conservative,…")
@click.option("--autoscale", is_flag=True, help="On a fleet; --compare static,queue-only,….")
@click.option("--boot-p95", default="120s", show_default=True, help="Fleet: 95 % of boots.")
@click.option("--boot-median", help="Fleet: half of the boots. Default: 5/8 of the p95.")
@click.option("--failed-boots", default=2.0, show_default=True, help="Fleet: percent that fail.")
@click.option("--idle", default="10m", show_default=True, help="Fleet: how long one may idle.")
@click.option("--price", default=1.0, show_default=True, help="Fleet: of a machine an hour.")
@click.option("--launches", default=60, show_default=True, help="Fleet: boots begun a minute.")
@click.option("--keep-booked", is_flag=True, help="Fleet: keep machines with bookings ahead.")
@click.option("--suspend-time", default="0", help="Time that suspending takes.")
@click.option("--resume-time", default="0", help="Time that resuming takes.")
@click.option("--shutdown-time", default="0", help="Time that shutting down takes after the work.")
@click.option("--migration", default="no", help="How suspended leases move: no, notransfer, Mb/s.")
@click.option("--partial-starts", is_flag=True, help="Begin for a while, be suspended, go on.")
@click.option("--threshold", default="0", help="Shortest run worth suspending for.")
@click.option("--first", type=click.IntRange(1), help="Only the first so many leases.")
@click.option("--inject", type=_FILE, multiple=True, help="A trace of leases to merge in.")
@click.option("--annotate", type=_FILE, help="Annotations of the leases, applied at last.")
@click.option("--seed", default=0, show_default=True, help="Carried into the results.")
@click.option("--skip-bad", is_flag=True, help="Leave out lines that are no lease, and count them.")
@click.option("--out", type=_FILE, help="Write everything into this folder.")
@click.option("--csv", type=_FILE, help="Write one line a lease.")
@click.option("--json", type=_FILE, help="Write leases and figures as JSON.")
@click.option("--parquet", type=_FILE, help="Write one row a lease; needs pyarrow.")
@click.option("--summary", type=_FILE, help="Write the figures as JSON.")
@click.option("--pictures", type=_FILE, help="Write SVG pictures into this folder.")
@click.option("--png", is_flag=True, help="Pictures as PNG too; needs rsvg-convert or cairosvg.")
@click.option("--report", type=_FILE, help="Write one HTML page with everything.")
@click.option("-q", "--quiet", is_flag=True, help="No summary and no progress on the screen.")
def replay(trace: Path, **options: Any) -> None:  # click's own
    """Replay a trace."""
    gc.set_threshold(_COLLECT_EVERY, 20, 100)
    from tenure_cli.simulation.replaying import Replay

    outputs = _outputs(options)
    outputs.check()
    if options["autoscale"]:
        from tenure_cli.simulation.fleets import FleetReplay, settings_of

        fleets = settings_of(options)
        [words] = _policies({**options, "compare": None})
        FleetReplay(trace, options).run_fleets(fleets, words, outputs)
        return
    Replay(trace, options).run(_policies(options), outputs)


def _outputs(options: dict[str, Any]) -> Any:  # loaded late
    from tenure_cli.simulation.outputs import Outputs

    kinds = ("csv", "json", "parquet", "summary", "pictures", "report")
    given = {kind: options[kind] for kind in kinds if options[kind] is not None}
    if options["png"] and options["pictures"] is None and options["out"] is None:
        raise click.UsageError("--png goes with --pictures or --out")
    if options["out"] is None:
        return Outputs(**given, png=options["png"])
    from dataclasses import replace

    return replace(Outputs.all_in(options["out"], png=options["png"]), **given)


def _policies(options: dict[str, Any]) -> Sequence[PolicyWords]:
    base = words_of(*(options[key] for key in POLICY_OPTIONS))
    for key in ("suspend", "resume", "shutdown", "threshold"):
        text = options[key if key == "threshold" else f"{key}_time"]
        if text != "0":
            base = parse_policy(f"+{key}={text}", base)
    if options["migration"] != "no":
        base = parse_policy(f"+migration={options['migration']}", base)
    if options["partial_starts"]:
        base = parse_policy("+partial=on", base)
    if not options["compare"]:
        return [base]
    words = [parse_policy(text, base) for text in options["compare"].split(",") if text.strip()]
    names = {each.name for each in words}
    if len(words) < 2 or len(names) < len(words):
        raise click.UsageError("--compare names at least two policies, each once")
    return words
