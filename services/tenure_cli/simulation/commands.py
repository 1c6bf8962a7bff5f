"""`tenure simulate convert`, `generate`, `annotate` and `history`: traces made and remade."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TextIO

import click

from tenure_cli.simulation.sites import site_of
from tenure_core.errors import Invalid, Violation

_FILE: Final = click.Path(path_type=Path)


@click.command()
@click.argument("source", type=_FILE)
@click.argument("target", type=_FILE, default="-")
@click.option("--to", type=click.Choice(["lwf", "json"]), help="Default: by the target's name.")
@click.option("--nodes", type=click.IntRange(1, 1_000_000), help="The site: so many equal nodes.")
@click.option("--cpu", help="Processors a node. Default 1.")
@click.option("--memory", help="Memory a node.")
@click.option("--resource", multiple=True, help="KIND=AMOUNT a node, for any other kind.")
@click.option("--site", type=_FILE, help="The site from a JSON file; written into the target.")
@click.option("--slot", default="cpu=1", show_default=True, help="What a processor of a trace is.")
@click.option("--first", type=click.IntRange(1), help="Only the first so many leases.")
@click.option("--inject", type=_FILE, multiple=True, help="A trace of leases to merge in.")
@click.option("--annotate", type=_FILE, help="Annotations of the leases, applied at last.")
@click.option("--skip-bad", is_flag=True, help="Leave out lines that are no lease, and count them.")
def convert(source: Path, target: Path, to: str | None, **options: object) -> None:
    """Convert a trace to XML (lwf) or to our own JSON; `-` is the screen."""
    from tenure_cli.simulation.replaying import Replay
    from tenure_sim.convert import write_trace

    form = to or ("lwf" if target.name.split(".")[-1] in ("lwf", "xml") else "json")
    trace = Replay(source, options).read()
    with written(target) as out:
        write_trace(trace, form, out)
    workload = trace.workload
    said = f"{len(workload):,} leases"
    if workload.bad:
        said += f", {len(workload.bad):,} bad lines left out"
    if workload.left_out:
        said += f", {workload.left_out:,} records without a run or too wide left out"
    click.echo(said, err=True)


@click.command()
@click.argument("target", type=_FILE, default="-")
@click.option("--jobs", type=click.IntRange(1, 10_000_000), default=1_000, show_default=True)
@click.option("--nodes", type=click.IntRange(2, 1_000_000), default=128, show_default=True)
@click.option("--load", type=float, help="Offered load; default: what the model gives.")
@click.option(
    "--overestimate", default=3.0, show_default=True, help="Requests: run x (1 + 0..this)."
)
@click.option("--seed", default=0, show_default=True)
@click.option("--config", type=_FILE, help="A generator's configuration instead of Lublin's model.")
def generate(
    target: Path,
    jobs: int,
    nodes: int,
    load: float | None,
    overestimate: float,
    seed: int,
    config: Path | None,
) -> None:
    """Make a trace: by Lublin's model as SWF, or by a configuration as XML or JSON."""
    if config is None:
        from tenure_sim.lublin import LublinModel, write_swf

        try:
            model = LublinModel(jobs, nodes, seed, load, overestimate)
        except ValueError as error:
            raise click.UsageError(str(error)) from None
        with written(target) as out:
            write_swf(model, out)
        return
    from tenure_sim.annotate_made import Recipe
    from tenure_sim.convert import Trace, write_trace

    workload = Recipe(config.name, text_of(config), seed).leases(f"generated-{seed}", nodes)
    form = "lwf" if target.name.split(".")[-1] in ("lwf", "xml") else "json"
    with written(target) as out:
        write_trace(Trace(workload, form, site_of(nodes, None, None, (), None)), form, out)


@click.command()
@click.argument("target", type=_FILE, default="-")
@click.option("--config", type=_FILE, required=True, help="What to draw, as INI.")
@click.option("--trace", type=_FILE, help="Annotate the leases of this trace, by their ids.")
@click.option("--count", type=click.IntRange(1, 10_000_000), help="So many annotations, in order.")
@click.option("--nodes", type=click.IntRange(1, 1_000_000), help="Size of the trace's machine.")
@click.option("--seed", default=0, show_default=True)
def annotate(
    target: Path, config: Path, trace: Path | None, count: int | None, nodes: int | None, seed: int
) -> None:
    """Make annotations: starts, deadlines, images and rates, drawn by a configuration."""
    from tenure_sim.annotate_made import Recipe, write_annotations
    from tenure_sim.convert import read_trace

    if (trace is None) == (count is None):
        raise click.UsageError("give either --trace or --count")
    recipe = Recipe(config.name, text_of(config), seed)
    ids: list[str] | None = None
    leases: list[tuple[str, int]] = [("unknown", 0)] * (count or 0)
    if trace is not None:
        workload = read_trace(trace, site=site_of(nodes, None, None, (), None)).workload
        owners = workload.owners or ["unknown"] * len(workload)
        ids = list(workload.ids)
        leases = list(zip(owners, workload.requests, strict=True))
    with written(target) as out:
        write_annotations(ids, recipe.annotations(leases), out)


@click.command()
@click.argument("target", type=_FILE, default="-")
@click.option("--pool", default="default", show_default=True)
@click.option("--since", default="", help="Only leases created then or later: -30d, 2027-01-01.")
@click.option("--slot-kinds", default="", help="Only these kinds of resources: cpu,memory.")
def history(target: Path, pool: str, since: str, slot_kinds: str) -> None:
    """Export what really happened in a pool as a trace of our own, with the pool's nodes.

    Replay it under another policy to see who would have waited longer:
    `tenure simulate history h.json && tenure simulate h.json --compare easy,conservative`.
    """
    from tenure_cli.simulation.live import export_history

    kinds = frozenset(kind.strip() for kind in slot_kinds.split(",") if kind.strip())
    with written(target) as out:
        told = export_history(pool, since, kinds, out)
    click.echo(told, err=True)


@click.command()
@click.argument("file", type=_FILE)
@click.option("--out", type=_FILE, help="Write leases and figures of each run into this folder.")
@click.option("--list", "only_list", is_flag=True, help="Say which runs there are, run none.")
@click.option("--first", type=click.IntRange(1), help="Only the first so many leases of each.")
@click.option("--skip-bad", is_flag=True, help="Leave out lines that are no lease, and count them.")
def configs(
    file: Path, out: Path | None, first: int | None, *, only_list: bool, skip_bad: bool
) -> None:
    """Run a configuration of Haizea, or all that a multi-configuration file describes."""
    from tenure_cli.simulation.configured import run_all
    from tenure_sim.compare_configurations import read_configurations

    found = read_configurations(file, text_of(file))
    if only_list:
        click.echo("\n".join(each.name for each in found))
        return
    run_all(found, out=out, first=first, skip_bad=skip_bad)


def text_of(path: Path) -> str:
    """Return a file's text. Raises Invalid when there is none."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        violation = Violation(str(path), "CANNOT_READ", str(error))
        raise Invalid([violation], "CANNOT_READ") from None


@contextmanager
def written(target: Path) -> Iterator[TextIO]:
    """Open a file to write, or the screen for `-`."""
    if str(target) == "-":
        yield sys.stdout
        return
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        out = target.open("w", encoding="utf-8", newline="")
    except OSError as error:
        violation = Violation(str(target), "CANNOT_WRITE", str(error))
        raise Invalid([violation], "CANNOT_WRITE") from None
    with out:
        yield out
