"""Policies as people type them: `easy`, or `easy+ordering=shortest+preemption=off`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final

import click

from tenure_core.policies.backfilling import Backfilling
from tenure_core.policies.bundle import HALF_LIFE_MS, MEGABIT, Migration, Overheads, Policies
from tenure_core.policies.ordering import AGE_MAX_MS, OrderingTerms, parse_ordering
from tenure_core.policies.ordering_words import WORDS
from tenure_core.policies.pricing import NAMES as PRICES
from tenure_core.policies.pricing import PricingPolicy, parse_pricing
from tenure_scheduler.policy_choices import (
    ADMISSIONS,
    PLACEMENTS,
    PREEMPTIONS,
    PRICINGS,
    Choices,
)
from tenure_scheduler.policy_choices import WORDS as OFFERED

_CHOICES: Final[Mapping[str, Choices[Any]]] = {
    "admission": ADMISSIONS,
    "placement": PLACEMENTS,
    "preemption": PREEMPTIONS,
}
_SPANS: Final = ("suspend", "resume", "shutdown", "threshold", "age", "halflife")
_MEGABITS_MAX: Final = 1_000_000
Decorated = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class PolicyWords:
    """One policy in words, and the name under which it is shown."""

    backfilling: str = "easy"
    ordering: str = "fifo"
    placement: str = "pack"
    preemption: str = "suspend"
    depth: int | None = None
    suspend: int = 0
    resume: int = 0
    shutdown: int = 0
    threshold: int = 0
    age: int = AGE_MAX_MS
    halflife: int = HALF_LIFE_MS
    admission: str = "all"
    pricing: str = "free"
    partial: str = "off"
    migration: str = "no"
    name: str = ""

    def bundle(self, seed: int = 0) -> Policies:
        """Return what the planner is told; `seed` is for prices that are drawn."""
        return Policies(
            backfilling=Backfilling.parse(self.backfilling),
            ordering=parse_ordering(
                self.ordering, OrderingTerms(age_max_ms=self.age), OFFERED.find
            ),
            half_life_ms=self.halflife,
            host_selection=PLACEMENTS[self.placement],
            preemption=PREEMPTIONS[self.preemption],
            overheads=Overheads(
                self.suspend, self.resume, self.shutdown, *_migration(self.migration)
            ),
            depth_max=self.depth,
            threshold_ms=self.threshold,
            admission=ADMISSIONS[self.admission],
            pricing=_pricing(self.pricing, seed),
            partial_starts=self.partial == "on",
        )

    def described(self) -> str:
        """Return everything that is decided, in the words in which it is typed."""
        return "+".join(
            f"{field.name}={getattr(self, field.name)}"
            for field in fields(self)
            if field.name not in ("name", "depth") or (field.name == "depth" and self.depth)
        )


_KEYS: Final[tuple[str, ...]] = (
    "backfilling", "ordering", "placement", "preemption", "admission", "pricing", "depth",
    "partial", "migration", *_SPANS,
)  # fmt: skip


def parse_policy(text: str, base: PolicyWords) -> PolicyWords:
    """Return the policy that a text names; what it leaves open is as in `base`.

    Raises click.UsageError with a sentence on what would be right.
    """
    first, *rest = text.strip().lower().split("+")
    words = replace(base, name=text.strip())
    if first and "=" not in first:
        words = _with(words, "backfilling", first)
    elif first:
        rest = [first, *rest]
    for part in rest:
        key, equals, value = part.partition("=")
        if not equals or key not in _KEYS:
            raise click.UsageError(
                f"{part!r} in policy {text!r} is not KEY=VALUE with a KEY of {', '.join(_KEYS)}"
            )
        words = _with(words, key, value)
    return words


def _with(words: PolicyWords, key: str, value: str) -> PolicyWords:
    try:
        if key == "backfilling":
            return replace(words, backfilling=str(Backfilling.parse(value)))
        if key == "ordering":
            parse_ordering(value, offered=OFFERED.find)
            return replace(words, ordering=value)
        if key == "pricing":
            _pricing(value)
            return replace(words, pricing=value)
        if key == "migration":
            _migration(value)
            return replace(words, migration=value)
        if key == "partial":
            if value not in ("on", "off"):
                raise ValueError(f"partial is on or off, not {value!r}")  # noqa: TRY301
            return replace(words, partial=value)
        if key == "depth":
            return replace(words, depth=_depth(value))
        if key in _SPANS:
            from tenure_cli.times import parse_duration  # most policies name no span

            return replace(words, **{key: parse_duration(value)})  # type: ignore[arg-type]  # spans
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if _CHOICES[key].find(value) is None:
        raise click.UsageError(f"{key} is one of {', '.join(_CHOICES[key].names())}, not {value!r}")
    return replace(words, **{key: value})  # type: ignore[arg-type]  # texts


def _pricing(text: str, seed: int = 0) -> PricingPolicy:
    try:
        return parse_pricing(text, seed)
    except ValueError:
        offered = PRICINGS.find(text)
        if offered is None:
            raise
        return offered


def _migration(text: str) -> tuple[Migration, int]:
    """Return whether state moves, and how many bytes a second."""
    if text == "no":
        return Migration.NO, 0
    if text == "notransfer":
        return Migration.YES_NOTRANSFER, 0
    if text.isdigit() and 1 <= int(text) <= _MEGABITS_MAX:
        return Migration.YES, int(text) * MEGABIT
    raise ValueError(f"migration is no, notransfer or a number of Mb/s, not {text!r}")


def _depth(value: str) -> int:
    if not value.isdigit() or int(value) < 1:
        raise ValueError(f"a depth is a whole number from 1, not {value!r}")
    return int(value)


POLICY_OPTIONS: Final = (
    "policy", "backfilling", "ordering", "placement", "preemption", "depth", "admission", "pricing",
)  # fmt: skip
"""The names of the options that say by which policy to plan, as `words_of` takes them."""

_OPTIONS: Final = (
    click.option("--policy", default="", help="A whole policy: easy, easy+ordering=shortest, …"),
    click.option("--backfilling", help="off, easy, conservative or intermediate:N. Default easy."),
    click.option("--ordering", help=f"Order of the queue: {', '.join(WORDS)}, joined by /."),
    click.option("--placement", help=f"Choice of nodes: {', '.join(PLACEMENTS.ours)}."),
    click.option("--preemption", help=f"Who may be preempted: {', '.join(PREEMPTIONS.ours)}."),
    click.option("--admission", help=f"Which leases are taken: {', '.join(ADMISSIONS.ours)}."),
    click.option("--pricing", help=f"What leases cost, in simulations: {', '.join(PRICES)}."),
    click.option("--depth", help="Waiting leases looked at behind the first that cannot start."),
)


def policy_options(command: Decorated) -> Decorated:
    """Add the options that say by which policy to plan."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def words_of(
    policy: str,
    backfilling: str | None,
    ordering: str | None,
    placement: str | None,
    preemption: str | None,
    depth: str | None,
    admission: str | None = None,
    pricing: str | None = None,
) -> PolicyWords:
    """Return the policy that the options say; a single option goes before `--policy`."""
    words = parse_policy(policy, PolicyWords()) if policy else PolicyWords()
    given = {
        "backfilling": backfilling,
        "ordering": ordering,
        "placement": placement,
        "preemption": preemption,
        "depth": depth,
        "admission": admission,
        "pricing": pricing,
    }
    for key, value in given.items():
        if value is not None:
            words = _with(words, key, value.strip().lower())
    said = [f"{key}={value}" for key, value in given.items() if value and key != "backfilling"]
    return replace(words, name=policy or "+".join([words.backfilling, *said]))
