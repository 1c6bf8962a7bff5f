"""Random values as the annotator's configuration describes them.

Distributions, all between `min` and `max`: `uniform`; `normal` (mu, sigma, clamped);
`bounded-pareto` (alpha, by the inverse of its distribution function); `truncated-pareto` (alpha and
scale, drawn anew until below 10, then rescaled from 0..10); `discrete`, one of `values`, weighted
by `weights` where given. `invert = true` mirrors a draw between the bounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

from tenure_core.errors import Invalid, Violation

_REACH = 10.0


@dataclass(frozen=True, slots=True)
class Draws:
    """One section of a configuration that describes random values."""

    section: str
    options: Mapping[str, str]

    def number(self, rng: Random) -> float:
        """Return one value. Raises Invalid when the section does not describe any."""
        kind = self.options.get("distribution", "uniform").strip().lower()
        if kind == "discrete":
            text = self.word(rng)
            try:
                return float(text)
            except ValueError:
                raise self.wrong("values", f"{text!r} is no number") from None
        low, high = self.real("min"), self.real("max")
        if high < low:
            raise self.wrong("max", f"{high:g} is below min, {low:g}")
        value = self._between(rng, kind, low, high)
        if self.options.get("invert", "false").strip().lower() in ("true", "yes"):
            value = low + high - value
        return value

    def word(self, rng: Random) -> str:
        """Return one of the listed values."""
        values = [text.strip() for text in self.need("values").replace(",", " ").split()]
        if not values:
            raise self.wrong("values", "no value is listed")
        given = self.options.get("weights")
        if given is None:
            return rng.choice(values)
        weights = [float(text) for text in given.replace(",", " ").split()]
        if len(weights) != len(values):
            raise self.wrong("weights", f"{len(values)} values have {len(weights)} weights")
        return rng.choices(values, weights)[0]

    def real(self, option: str, default: float | None = None) -> float:
        """Return an option that is a number."""
        if default is not None and option not in self.options:
            return default
        text = self.need(option)
        try:
            return float(text)
        except ValueError:
            raise self.wrong(option, f"{text!r} is no number") from None

    def need(self, option: str) -> str:
        """Return an option that must be there."""
        if option not in self.options:
            raise self.wrong(option, "is not given")
        return self.options[option]

    def wrong(self, option: str, description: str) -> Invalid:
        """Return the error for an option that cannot be used."""
        field = f"[{self.section}] {option}"
        return Invalid([Violation(field, "BAD_OPTION", description)], "BAD_CONFIGURATION")

    def _between(self, rng: Random, kind: str, low: float, high: float) -> float:
        match kind:
            case "uniform":
                return rng.uniform(low, high)
            case "normal":
                drawn = rng.gauss(self.real("mu"), self.real("sigma"))
                return min(high, max(low, drawn))
            case "bounded-pareto":
                alpha = self.real("alpha")
                if low <= 0:
                    raise self.wrong("min", "a bounded Pareto variable begins above 0")
                ratio = (low / high) ** alpha
                drawn = low * (1 - rng.random() * (1 - ratio)) ** (-1 / alpha)
                return float(min(high, drawn))
            case "truncated-pareto":
                alpha, scale = self.real("alpha"), self.real("scale", 1.0)
                while True:
                    drawn = scale * (rng.paretovariate(alpha) - 1)
                    if drawn <= _REACH:
                        return low + (high - low) * drawn / _REACH
            case _:
                raise self.wrong("distribution", f"{kind!r} is not known")
