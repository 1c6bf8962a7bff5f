"""Makes traces from the workload model of Lublin and Feitelson (JPDC 63(11), 2003).

Of one class of jobs (batch and interactive not told apart), with the paper's parameters:

- width: serial with probability 0.244; otherwise 2 to the power of a two-stage uniform variable
  between 0.8 and log2 of the machine, broken 2.5 below the top, rounded to a whole power with
  probability 0.576 of all jobs;
- run time: e to the power of a hyper-gamma variable; the weight of the short branch falls with the
  width, as a share of the machine that the paper's parameters were fitted on (128 nodes);
- arrivals: gaps of e to the power of a gamma variable, stretched by the share of each half hour in
  the daily cycle.

The model knows no estimates: a request is the run time times a factor uniform in [1, 1 + f] (the
f-model of Feitelson and Weil 1998). Where a load is wanted, all gaps are scaled alike to meet it.
The same parameters and seed give the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, exp, lgamma, log, log2
from random import Random
from typing import Final, TextIO

from tenure_core.timebase import SECOND_MS
from tenure_sim.workload import Workload

_SERIAL, _POWER_OF_TWO = 0.244, 0.576
_WIDTH_LOW, _WIDTH_BREAK, _WIDTH_FIRST = 0.8, 2.5, 0.86
_SHORT, _LONG = (4.2, 0.94), (312.0, 0.03)
_SHORT_SLOPE, _SHORT_AT_ZERO, _FITTED_ON = -0.0054, 0.78, 128
_GAP = (10.2303 * 1.0225, 0.4871)
_CYCLE = (8.1737, 3.9631)
_BUCKETS: Final = 48
_BUCKET_S: Final = 1800
_DAY_BEGINS: Final = 11
_RUN_LOG_MAX, _GAP_LOG_MAX = 12.0, 13.0


@dataclass(frozen=True, slots=True)
class LublinModel:
    """What to generate. `load` is offered work over capacity, None for what the model gives."""

    jobs: int
    processors: int
    seed: int
    load: float | None = None
    overestimate: float = 3.0

    def __post_init__(self) -> None:
        if self.jobs < 1 or self.processors < 2:
            raise ValueError("the model needs at least one job and two processors")
        if self.load is not None and not 0 < self.load <= 10:
            raise ValueError(f"a load lies above 0 and at most at 10, not {self.load}")


def generate(model: LublinModel) -> Workload:
    """Return the trace as a workload, in milliseconds."""
    rng = Random(model.seed)  # noqa: S311  # reproducible, not secret
    widths = [_width(rng, model.processors) for _ in range(model.jobs)]
    runs = [_run(rng, width, model.processors) for width in widths]
    factors = [1 + model.overestimate * rng.random() for _ in range(model.jobs)]
    requests = [ceil(run * factor) for run, factor in zip(runs, factors, strict=True)]
    moments = list(_arrivals(rng, model.jobs))
    if model.load is not None and model.jobs > 1:
        work = sum(width * run for width, run in zip(widths, runs, strict=True))
        wanted = work / (model.processors * model.load)
        stretch = wanted / (moments[-1] - moments[0])
        moments = [(moment - moments[0]) * stretch for moment in moments]
    return Workload(
        name=f"lublin-{model.processors}-{model.jobs}-{model.seed}",
        ids=[str(number) for number in range(1, model.jobs + 1)],
        arrivals=[int(moment) * SECOND_MS for moment in moments],
        widths=widths,
        requests=[request * SECOND_MS for request in requests],
        runs=[run * SECOND_MS for run in runs],
    )


def write_swf(model: LublinModel, out: TextIO) -> None:
    """Write the trace as a Standard Workload Format file."""
    workload = generate(model)
    load = "as the model gives" if model.load is None else f"{model.load:g}"
    out.write(
        "; Version: 2.2\n"
        f"; Computer: synthetic, {model.processors} processors\n"
        "; Information: workload model of Lublin and Feitelson, JPDC 63(11), 2003\n"
        f"; Note: seed {model.seed}, offered load {load}, requests up to "
        f"{1 + model.overestimate:g} times the run time\n"
        f"; MaxJobs: {model.jobs}\n"
        f"; MaxProcs: {model.processors}\n"
    )
    for i, name in enumerate(workload.ids):
        submit, run = workload.arrivals[i] // SECOND_MS, workload.runs[i] // SECOND_MS
        width, request = workload.widths[i], workload.requests[i] // SECOND_MS
        out.write(
            f"{name} {submit} -1 {run} {width} -1 -1 {width} {request} -1 1 -1 -1 -1 -1 -1 -1 -1\n"
        )


def _width(rng: Random, processors: int) -> int:
    top = log2(processors)
    draw = rng.random()
    if draw <= _SERIAL:
        return 1
    middle = max(_WIDTH_LOW, top - _WIDTH_BREAK)
    if rng.random() <= _WIDTH_FIRST:
        power = rng.uniform(_WIDTH_LOW, middle)
    else:
        power = rng.uniform(middle, top)
    if draw <= _SERIAL + _POWER_OF_TWO:
        power = round(power)
    return max(1, min(processors, int(2**power + 0.5)))


def _run(rng: Random, width: int, processors: int) -> int:
    share = width * _FITTED_ON / processors
    short = min(1.0, max(0.0, _SHORT_SLOPE * share + _SHORT_AT_ZERO))
    while True:
        alpha, beta = _SHORT if rng.random() <= short else _LONG
        power = rng.gammavariate(alpha, beta)
        if power <= _RUN_LOG_MAX:
            return max(1, int(exp(power)))


def _arrivals(rng: Random, jobs: int) -> Iterator[float]:
    """Return arrival times in seconds from a midnight on.

    A gap is drawn in points, a half hour of the day costs as many points as its share of arrivals:
    busy half hours are passed slowly.
    """
    cost = _daily_cycle()
    bucket, spent = 0, 0.0
    at = 0.0
    for _ in range(jobs):
        power = rng.gammavariate(*_GAP)
        while power > _GAP_LOG_MAX:
            power = rng.gammavariate(*_GAP)
        points = exp(power) / _BUCKET_S
        while points > cost[bucket] - spent:
            points -= cost[bucket] - spent
            at += _BUCKET_S * (1 - spent / cost[bucket])
            bucket, spent = (bucket + 1) % _BUCKETS, 0.0
        at += _BUCKET_S * points / cost[bucket]
        spent += points
        yield at


def _daily_cycle() -> list[float]:
    """Return the weight of each half hour of the day, 1 on average."""
    weights = [0.0] * _BUCKETS
    for number in range(_DAY_BEGINS, _BUCKETS + _DAY_BEGINS):
        upper, lower = _gamma_share(number + 0.5), _gamma_share(number - 0.5)
        weights[(number - 1) % _BUCKETS] = upper - lower
    mean = sum(weights) / _BUCKETS
    return [weight / mean for weight in weights]


def _gamma_share(x: float) -> float:
    """Return the distribution function of the daily cycle's gamma variable, by its series."""
    alpha, beta = _CYCLE
    x /= beta
    term = total = 1 / alpha
    step = alpha
    while term > total * 1e-12:
        step += 1
        term *= x / step
        total += term
    return total * exp(alpha * log(x) - x - lgamma(alpha))
