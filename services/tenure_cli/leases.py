"""Leases as the command line takes and shows them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from tenure.admission.v1 import lease_pb2 as lpb
from tenure.type.v1 import work_pb2
from tenure_cli.times import local_now, parse_duration, parse_instant, show_duration, show_instant
from tenure_core.resources import format_quantity, is_kind, parse_quantity
from tenure_runtime.rpc.wire import bare, span_to_millis, to_duration, to_millis, to_timestamp

ENDED: Final = frozenset(
    {
        lpb.Lease.STATE_DONE,
        lpb.Lease.STATE_FAILED,
        lpb.Lease.STATE_CANCELLED,
        lpb.Lease.STATE_REJECTED,
    }
)
Decorated = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the options of `run` and `lease create` said."""

    nodes: int
    cpu: str | None
    memory: str | None
    gpu: str | None
    resource: tuple[str, ...]
    time: str
    start: str | None
    deadline: str | None
    not_before: str | None
    immediate: bool
    pool: str
    project: str
    priority: int
    preemptible: bool | None
    env: tuple[str, ...]
    secret: tuple[str, ...]
    image: str
    on_failure: str
    attempts: int
    on_loss: str
    after: tuple[str, ...]
    after_any: tuple[str, ...]
    label: tuple[str, ...]
    on: tuple[str, ...]
    spread: bool
    grace: str | None
    hold: str | None = None


_OPTIONS: Final = (
    click.option("-n", "--nodes", default=1, show_default=True, help="Slots wanted, all at once."),
    click.option("--cpu", help="Processors a slot: 2, 0.5, 1500m. Default 1."),
    click.option("--memory", help="Memory a slot: 512Mi, 4Gi."),
    click.option("--gpu", help="GPUs a slot: 1, 0.5."),
    click.option("--resource", multiple=True, help="KIND=AMOUNT a slot, for any other kind."),
    click.option("--time", default="10m", show_default=True, help="For how long: 90s, 10m, 1h30m."),
    click.option("--start", help="At this time exactly: +2h, 'tomorrow 09:00', ISO 8601."),
    click.option("--deadline", help="Any time that ends by then."),
    click.option("--not-before", help="With --deadline: not before then."),
    click.option("--immediate", is_flag=True, help="Now or not at all."),
    click.option("--pool", default="", help="Pool; default `default`, or one that could run it."),
    click.option("--project", default="", help="Project that is charged; default `default`."),
    click.option("--priority", default=0, show_default=True, help="Higher goes first."),
    click.option("--preemptible/--not-preemptible", default=None, help="May it be preempted?"),
    click.option("--env", multiple=True, help="NAME=VALUE for the work's environment."),
    click.option(
        "--secret",
        multiple=True,
        help="NAME, a variable of this environment, or NAME=@FILE: for the work alone.",
    ),
    click.option("--image", default="", help="Image to prepare on the nodes."),
    click.option(
        "--on-failure",
        type=click.Choice(["fail", "restart"]),
        default="fail",
        help="What follows a non-zero exit code.",
    ),
    click.option("--attempts", default=1, show_default=True, help="Attempts in all, with restart."),
    click.option(
        "--on-loss",
        type=click.Choice(["stop", "keep"]),
        default="stop",
        help="What its agents do when they lose contact.",
    ),
    click.option("--after", multiple=True, help="Lease that must have succeeded first."),
    click.option("--after-any", multiple=True, help="Lease that must have ended first."),
    click.option("--label", multiple=True, help="KEY=VALUE for your own use."),
    click.option("--on", multiple=True, help="KEY=VALUE that a node must have."),
    click.option("--spread", is_flag=True, help="Each slot on a node of its own."),
    click.option("--grace", help="Time between SIGTERM and SIGKILL; default 5s."),
)


def lease_options(command: Decorated) -> Decorated:
    """Add the options that say what lease is wanted."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def to_lease(wanted: Wanted, command: Sequence[str]) -> lpb.Lease:
    """Return the lease that the options ask for. Raises click.UsageError."""
    try:
        lease = lpb.Lease(
            project=wanted.project,
            pool=wanted.pool,
            node_count=wanted.nodes,
            amounts=_amounts(wanted),
            duration=to_duration(parse_duration(wanted.time)),
            priority=wanted.priority,
            preemptible=wanted.preemptible,
            work=work_pb2.Work(
                command=command,
                environment=pairs(wanted.env, "--env"),
                image=wanted.image,
                secrets=_secrets(wanted.secret),
            ),
            on_failure=lpb.Lease.OnFailure.Value(f"ON_FAILURE_{wanted.on_failure.upper()}"),
            max_attempts=wanted.attempts,
            on_loss=work_pb2.OnLoss.Value(f"ON_LOSS_{wanted.on_loss.upper()}"),
            dependencies=_dependencies(wanted),
            labels=pairs(wanted.label, "--label"),
            node_selector=pairs(wanted.on, "--on"),
            spread=wanted.spread,
            terms=_terms(wanted),
        )
        if wanted.grace is not None:
            lease.stop_grace_duration.CopyFrom(to_duration(parse_duration(wanted.grace)))
        if wanted.hold is not None:
            lease.hold_duration.CopyFrom(to_duration(parse_duration(wanted.hold)))
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    return lease


def _amounts(wanted: Wanted) -> dict[str, int]:
    given = {"cpu": wanted.cpu, "memory": wanted.memory, "gpu": wanted.gpu}
    texts = {kind: text for kind, text in given.items() if text is not None}
    texts.update(pairs(wanted.resource, "--resource"))
    if not texts:
        texts["cpu"] = "1"
    for kind in texts:
        if not is_kind(kind):
            raise ValueError(f"{kind!r} is no kind of resource")
    return {kind: parse_quantity(kind, text) for kind, text in texts.items()}


def pairs(given: Sequence[str], option: str) -> dict[str, str]:
    """Return what options said as KEY=VALUE. Raises ValueError."""
    found = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise ValueError(f"{option} is KEY=VALUE, not {text!r}")
        found[key] = value
    return found


def _secrets(given: Sequence[str]) -> dict[str, str]:
    """Return the secrets that options name; their values are never on the command line.

    Raises ValueError.
    """
    found = {}
    for text in given:
        name, equals, source = text.partition("=")
        if not equals:
            if name not in os.environ:
                raise ValueError(f"--secret {name}: this environment has no variable {name}")
            found[name] = os.environ[name]
        elif source.startswith("@"):
            try:
                found[name] = Path(source[1:]).read_text(encoding="utf-8").rstrip("\n")
            except OSError as error:
                raise ValueError(f"--secret {name}: {source[1:]}: {error.strerror}") from None
        else:
            # The text itself is not repeated: it may be the secret.
            raise ValueError("--secret is NAME or NAME=@FILE; others see what a command line says")
    return found


def _terms(wanted: Wanted) -> lpb.Terms:
    named = [bool(wanted.start), bool(wanted.deadline), wanted.immediate]
    if sum(named) > 1:
        raise ValueError("--start, --deadline and --immediate exclude one another")
    if wanted.not_before and not wanted.deadline:
        raise ValueError("--not-before goes with --deadline")
    now = local_now()

    def instant(text: str) -> int:
        return round(parse_instant(text, now).timestamp() * 1_000)

    if wanted.immediate:
        return lpb.Terms(immediate=lpb.ImmediateTerms())
    if wanted.start:
        return lpb.Terms(advance=lpb.AdvanceTerms(start_time=to_timestamp(instant(wanted.start))))
    if wanted.deadline:
        terms = lpb.DeadlineTerms(deadline_time=to_timestamp(instant(wanted.deadline)))
        if wanted.not_before:
            terms.earliest_start_time.CopyFrom(to_timestamp(instant(wanted.not_before)))
        return lpb.Terms(deadline=terms)
    return lpb.Terms(best_effort=lpb.BestEffortTerms())


def _dependencies(wanted: Wanted) -> list[lpb.Dependency]:
    succeeded, ended = lpb.Dependency.CONDITION_SUCCEEDED, lpb.Dependency.CONDITION_ENDED
    return [
        *(lpb.Dependency(lease=full(name), condition=succeeded) for name in wanted.after),
        *(lpb.Dependency(lease=full(name), condition=ended) for name in wanted.after_any),
    ]


def full(lease: str) -> str:
    """Return `leases/{id}` for an id or a name."""
    return lease if lease.startswith("leases/") else f"leases/{lease}"


def state_name(state: int) -> str:
    """Return a state as people say it: `queued`."""
    try:
        name = lpb.Lease.State.Name(state)  # type: ignore[arg-type]  # a number off the wire
    except ValueError:
        return f"state-{state}"
    return name.removeprefix("STATE_").lower()


def show_amounts(amounts: Mapping[str, int]) -> str:
    """Return amounts as people write them: `cpu=2 memory=4Gi`."""
    return " ".join(f"{kind}={format_quantity(kind, n)}" for kind, n in sorted(amounts.items()))


def show_terms(terms: lpb.Terms) -> str:
    """Return when a lease is wanted, in words."""
    now = local_now()
    match terms.WhichOneof("kind"):
        case "advance":
            return f"at {show_instant(to_millis(terms.advance.start_time), now)}"
        case "deadline":
            return f"by {show_instant(to_millis(terms.deadline.deadline_time), now)}"
        case "immediate":
            return "now"
        case _:
            return "best effort"


COLUMNS: Final = ("LEASE", "OWNER", "STATE", "WHEN", "NODES#", "AMOUNTS", "TIME#", "START", "WHY")


def row(lease: lpb.Lease) -> tuple[object, ...]:
    """Return a lease as a row under COLUMNS."""
    now = local_now()
    start = ""
    if lease.HasField("start_time"):
        start = show_instant(to_millis(lease.start_time), now)
    elif lease.HasField("predicted_start_time"):
        start = "~" + show_instant(to_millis(lease.predicted_start_time), now)
    return (
        bare(lease.name),
        lease.owner,
        state_name(lease.state),
        show_terms(lease.terms),
        lease.node_count,
        show_amounts(lease.amounts),
        show_duration(span_to_millis(lease.duration)),
        start,
        lease.reason.lower().replace("_", " "),
    )


def facts(lease: lpb.Lease) -> list[tuple[str, object]]:
    """Return everything worth reading about one lease, as names and values."""
    now = local_now()

    def instant(field: str) -> str:
        return show_instant(to_millis(getattr(lease, field)), now) if lease.HasField(field) else ""  # type: ignore[arg-type]  # names of the contract

    nodes = [f"{p.rank}:{bare(p.node)}" for p in lease.placements]
    return [
        ("lease", bare(lease.name)),
        ("owner", f"{lease.owner} (project {lease.project}, pool {lease.pool})"),
        ("state", state_name(lease.state)),
        ("why", f"{lease.message} [{lease.reason}]" if lease.reason else ""),
        (
            "wanted",
            f"{lease.node_count} × {show_amounts(lease.amounts)}, {show_terms(lease.terms)}",
        ),
        ("duration", show_duration(span_to_millis(lease.duration))),
        ("command", " ".join(lease.work.command)),
        ("created", instant("create_time")),
        ("to be confirmed by", instant("hold_expire_time")),
        ("predicted start", instant("predicted_start_time")),
        ("started", instant("start_time")),
        ("ended", instant("end_time")),
        ("exit code", lease.exit_code if lease.HasField("exit_code") else ""),
        ("nodes", " ".join(nodes)),
        ("attempt", lease.attempt or ""),
        ("preempted", lease.preemption_count or ""),
        ("labels", " ".join(f"{k}={v}" for k, v in sorted(lease.labels.items()))),
    ]
