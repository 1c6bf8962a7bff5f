"""`tenure trace LEASE`: the tree of a lease's trace, from the spans that the local suite keeps."""

from __future__ import annotations

from pathlib import Path

import click

from tenure_cli import traces
from tenure_cli.commands.lease_see import get_lease
from tenure_cli.commands.up import data_option
from tenure_cli.connection import run
from tenure_cli.embedded.layout import TRACES, default_data_folder
from tenure_cli.output import output_option, plain, print_json
from tenure_core.errors import NotFound
from tenure_runtime.rpc.wire import bare
from tenure_runtime.telemetry.span_store import StoredSpan, read_trace

HIDDEN_FACTS = frozenset({"lease", "rpc.system"})
"""What each line would repeat."""


@click.command()
@click.argument("lease")
@data_option
@output_option
def trace(lease: str, data: Path | None, output: str) -> None:
    """Show what became of a lease, step by step, across services, attempts and leaders.

    Times are from the beginning of the trace. `~` marks the cycle of a leader, which works on many
    leases and has a trace of its own.
    """
    found = run(lambda connection: get_lease(connection, lease))
    name, trace_id = bare(found.name), found.trace_parent[3:35]
    spans = _spans(((data or default_data_folder()) / TRACES).absolute(), trace_id)
    branches = traces.tree(spans, trace_id, name)
    if output == "json":
        shown = [traces.as_json(branch) for branch in branches]
        print_json({"lease": name, "trace": trace_id, "spans": shown})
        return
    if not branches:
        raise NotFound("TRACE_NOT_FOUND", f"no span of trace {trace_id or '(none)'} is stored here")
    own = [span for span in spans if span.trace == trace_id]
    began_ns = min(span.began_ns for span in own)
    took_ns = max(span.ended_ns for span in own) - began_ns
    click.echo(f"lease {name}, trace {trace_id}, {_millis(took_ns)} in all")
    for line in traces.lines(branches):
        click.echo(_text(line, began_ns))


def _spans(path: Path, trace_id: str) -> list[StoredSpan]:
    try:
        return read_trace(path, trace_id)
    except FileNotFoundError:
        raise NotFound(
            "TRACE_NOT_FOUND",
            f"no spans are kept in {path.parent}: a suite of `tenure up` keeps them, a cluster "
            f"sends them to its OTLP collector (there it is trace {trace_id or '(none)'})",
        ) from None


def _text(line: traces.Line, began_ns: int) -> str:
    span = line.span
    start = f"{(span.began_ns - began_ns) / 1e9:+9.3f} s"
    mark = "~ " if line.is_link else ""
    facts = " ".join(
        f"{key}={value}"
        for key, value in span.attributes.items()
        if key not in HIDDEN_FACTS and value != ""
    )
    failed = f" FAILED {span.failure}" if span.failure else ""
    other = f" (trace {span.trace})" if line.is_link else ""
    name = f"{'  ' * line.depth}{mark}{span.name.removeprefix('tenure.')}"
    took = _millis(span.ended_ns - span.began_ns)
    return plain(f"{start} {took:>12}  {span.service:<10} {name} {facts}{failed}{other}").rstrip()


def _millis(nanoseconds: int) -> str:
    return f"{nanoseconds / 1e6:,.1f} ms"
