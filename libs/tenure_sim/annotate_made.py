"""Makes annotations and workloads from a configuration in the ancestor's form (INI).

Sections that annotate: `[start-delay]` and `[deadline-stretch]` with a `type`, `[user-rate]`,
`[software]`. Sections that generate leases besides: `[numleases]`, `[interval]`, `[nodes]` with
`resources`, `[duration]`. What each draws is described in `annotate_draws`. A stretch of s gives
the deadline start + (1 + s) x duration (`multiple-of-duration`) or start + s seconds (`absolute`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from configparser import ConfigParser
from configparser import Error as ConfigError
from dataclasses import dataclass
from random import Random
from typing import TextIO
from xml.sax.saxutils import quoteattr

from tenure_core.errors import Invalid, Violation
from tenure_core.leases.lease import Advance, BestEffort, LeaseSpec
from tenure_core.resources import ResourceVector
from tenure_core.timebase import SECOND_MS, Millis
from tenure_sim.annotate_draws import Draws
from tenure_sim.lwf_values import format_span
from tenure_sim.workload import SimLease, Workload

_UNITS = {"cpu": 10, "memory": 2**20, "disk": 2**20}


@dataclass(frozen=True, slots=True)
class Annotation:
    """What one lease is given: times from its arrival, an image with its size, extras."""

    start: Millis | None = None
    deadline: Millis | None = None
    image: str = ""
    image_size: int = 0
    rate: float | None = None


class Recipe:
    """A configuration, and the random numbers that are drawn by it."""

    def __init__(self, name: str, text: str, seed: int) -> None:
        """Read a configuration. Raises Invalid for what is none."""
        parser = ConfigParser(interpolation=None)
        try:
            parser.read_string(text)
        except ConfigError as error:
            first = str(error).splitlines()[0]
            violation = Violation(name, "BAD_CONFIGURATION", first)
            raise Invalid([violation], "BAD_CONFIGURATION") from None
        self._sections = {key: Draws(key, dict(parser[key])) for key in parser.sections()}
        self._rng = Random(seed)  # noqa: S311  # reproducible, not secret
        self._rates: dict[str, float] = {}

    def annotations(self, leases: Iterable[tuple[str, Millis]]) -> Iterator[Annotation]:
        """Return an annotation for each lease, given as its owner and its duration."""
        for owner, duration in leases:
            start = self._start(duration)
            yield Annotation(
                start,
                self._deadline(start or 0, duration),
                *self._software(),
                self._rate(owner),
            )

    def leases(self, name: str, slots: int) -> Workload:
        """Return a generated workload; with `type = utilization`, work for so much of `slots`."""
        wanted = self._need("numleases")
        interval, nodes, lasts = (self._need(key) for key in ("interval", "nodes", "duration"))
        amounts = self._amounts(nodes)
        made: list[SimLease] = []
        at, work = 0, 0
        while self._goes_on(wanted, len(made), at, work, slots):
            duration = max(1, round(lasts.number(self._rng))) * SECOND_MS
            width = min(slots, max(1, round(nodes.number(self._rng))))
            delay = self._start(duration)
            terms = BestEffort() if delay is None else Advance(at + delay)
            spec = LeaseSpec("generated", "trace", "sim", terms, width, amounts, duration)
            made.append(SimLease(str(len(made) + 1), at, spec, duration))
            at += max(0, round(interval.number(self._rng))) * SECOND_MS
            work += width * duration
        return Workload.of(name, made)

    def _goes_on(self, wanted: Draws, count: int, at: Millis, work: int, slots: int) -> bool:
        if wanted.options.get("type", "interval") == "utilization":
            last = wanted.real("last-request") * SECOND_MS
            return at <= last and work < last * slots * wanted.real("utilization") / 100
        return count < wanted.real("numleases")

    def _need(self, section: str) -> Draws:
        if section not in self._sections:
            raise Draws(section, {}).wrong("", "the section is missing")
        return self._sections[section]

    def _amounts(self, nodes: Draws) -> ResourceVector:
        amounts: dict[str, int] = {}
        for part in nodes.options.get("resources", "CPU:100").replace(";", " ").split():
            kind, _, amount = part.partition(":")
            if not amount.isdigit():
                raise nodes.wrong("resources", f"{part!r} is not TYPE:AMOUNT")
            amounts[kind.lower()] = int(amount) * _UNITS.get(kind.lower(), 1)
        return ResourceVector(amounts)

    def _start(self, duration: Millis) -> Millis | None:
        delay = self._sections.get("start-delay")
        if delay is None:
            return None
        drawn = max(0.0, delay.number(self._rng))
        match delay.options.get("type", "absolute"):
            case "absolute":
                return round(drawn) * SECOND_MS
            case "multiple-of-duration":
                return round(drawn * duration / SECOND_MS) * SECOND_MS
            case other:
                raise delay.wrong("type", f"{other!r} is not known")

    def _deadline(self, start: Millis, duration: Millis) -> Millis | None:
        stretch = self._sections.get("deadline-stretch")
        if stretch is None:
            return None
        drawn = max(0.0, stretch.number(self._rng))
        match stretch.options.get("type", "multiple-of-duration"):
            case "absolute":
                return start + duration + round(drawn) * SECOND_MS
            case "multiple-of-duration":
                return start + round((1 + drawn) * duration / SECOND_MS) * SECOND_MS
            case other:
                raise stretch.wrong("type", f"{other!r} is not known")

    def _software(self) -> tuple[str, int]:
        software = self._sections.get("software")
        if software is None:
            return "", 0
        word = software.word(self._rng)
        image, _, size = word.partition("|")
        if not size.isdigit():
            raise software.wrong("values", f"{word!r} is not IMAGE|SIZE")
        return image, int(size)

    def _rate(self, owner: str) -> float | None:
        rate = self._sections.get("user-rate")
        if rate is None:
            return None
        if owner == "unknown":
            return round(rate.number(self._rng), 6)
        if owner not in self._rates:
            self._rates[owner] = round(rate.number(self._rng), 6)
        return self._rates[owner]


def write_annotations(
    ids: Iterable[str] | None, annotations: Iterable[Annotation], out: TextIO
) -> None:
    """Write an annotation file; without ids it is applied in order."""
    out.write('<?xml version="1.0" encoding="UTF-8"?>\n<lease-annotations>\n')
    names = iter(ids) if ids is not None else None
    for annotation in annotations:
        name = "" if names is None else f" id={quoteattr(next(names))}"
        out.write(f"  <lease-annotation{name}>\n")
        if annotation.start is not None:
            out.write(f'    <start><exact time="{format_span(annotation.start)}"/></start>\n')
        if annotation.deadline is not None:
            out.write(f'    <deadline time="{format_span(annotation.deadline)}"/>\n')
        if annotation.image:
            image = quoteattr(annotation.image)
            size = annotation.image_size
            out.write(f'    <software><disk-image id={image} size="{size}"/></software>\n')
        if annotation.rate is not None:
            rate = f'<attr name="simul_userrate" value="{annotation.rate:g}"/>'
            out.write(f"    <extra>{rate}</extra>\n")
        out.write("  </lease-annotation>\n")
    out.write("</lease-annotations>\n")
