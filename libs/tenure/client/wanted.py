"""What a lease is asked for with, as keyword arguments, and the message they become.

Decides names and defaults of the arguments. What makes sense is admission's to say: it answers
with all violations at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypedDict, Unpack

from tenure.admission.v1 import lease_pb2 as lpb
from tenure.client.spans import Span, When, instant_ms, span_ms
from tenure.type.v1 import work_pb2
from tenure_core.resources import parse_quantity
from tenure_runtime.rpc.wire import to_duration, to_timestamp

Amount = str | float
"""An amount as people write it: `2`, `1500m`, `16Gi`, 0.5."""


class Wanted(TypedDict, total=False):
    """The arguments of `submit`, `hold` and the like. Everything has a default.

    nodes         slots wanted, all at once (1)
    cpu, memory, gpu, resources
                  amounts a slot; `resources` for any other kind (one processor)
    duration      how long (`10m`)
    start         at this time exactly
    deadline, not_before
                  any time that ends by `deadline` and does not begin before `not_before`
    immediate     now or not at all
                  without these four: as soon as the queue allows
    command, environment, secrets, image
                  what to run on each slot; without a command, the capacity alone is leased.
                  `secrets` are variables whose values are kept encrypted and never shown
    pool, project, priority, preemptible, labels
                  who is asked, who is charged, who goes first
    on_failure, attempts, keep_on_loss
                  `restart` runs failed work anew, `attempts` times in all; whether work goes on
                  when its agent is out of contact
    after, after_any
                  ids of leases that must have succeeded, or ended in any way, first
    selector, spread
                  attributes that nodes must have; each slot on a node of its own
    grace         time between SIGTERM and SIGKILL
    hold          given up after so long unless it is confirmed
    """

    command: Sequence[str]
    nodes: int
    cpu: Amount
    memory: Amount
    gpu: Amount
    resources: Mapping[str, Amount]
    duration: Span
    start: When
    deadline: When
    not_before: When
    immediate: bool
    pool: str
    project: str
    priority: int
    preemptible: bool
    environment: Mapping[str, str]
    secrets: Mapping[str, str]
    image: str
    on_failure: Literal["fail", "restart"]
    attempts: int
    keep_on_loss: bool
    after: Sequence[str]
    after_any: Sequence[str]
    labels: Mapping[str, str]
    selector: Mapping[str, str]
    spread: bool
    grace: Span
    hold: Span


def full(lease: str) -> str:
    """Return `leases/{id}` for an id or a name."""
    return lease if lease.startswith("leases/") else f"leases/{lease}"


def lease_message(**wanted: Unpack[Wanted]) -> lpb.Lease:
    """Return the lease that the arguments ask for. Raises ValueError for what cannot be read."""
    unknown = wanted.keys() - Wanted.__annotations__.keys()
    if unknown:
        raise TypeError(f"a lease has no {', '.join(sorted(unknown))}")
    lease = lpb.Lease(
        project=wanted.get("project", ""),
        pool=wanted.get("pool", ""),
        terms=_terms(wanted),
        node_count=wanted.get("nodes", 1),
        amounts=_amounts(wanted),
        duration=to_duration(span_ms(wanted.get("duration", "10m"))),
        priority=wanted.get("priority", 0),
        preemptible=wanted.get("preemptible"),
        work=work_pb2.Work(
            command=wanted.get("command", ()),
            environment=wanted.get("environment", {}),
            image=wanted.get("image", ""),
            secrets=wanted.get("secrets", {}),
        ),
        on_failure=_ON_FAILURE[wanted.get("on_failure", "fail")],
        max_attempts=wanted.get("attempts", 1),
        on_loss=work_pb2.ON_LOSS_KEEP if wanted.get("keep_on_loss") else work_pb2.ON_LOSS_STOP,
        dependencies=_dependencies(wanted),
        labels=wanted.get("labels", {}),
        node_selector=wanted.get("selector", {}),
        spread=wanted.get("spread", False),
    )
    if "grace" in wanted:
        lease.stop_grace_duration.CopyFrom(to_duration(span_ms(wanted["grace"])))
    if "hold" in wanted:
        lease.hold_duration.CopyFrom(to_duration(span_ms(wanted["hold"])))
    return lease


_ON_FAILURE = {"fail": lpb.Lease.ON_FAILURE_FAIL, "restart": lpb.Lease.ON_FAILURE_RESTART}


def _amounts(wanted: Wanted) -> dict[str, int]:
    given = dict(wanted.get("resources", {}))
    if "cpu" in wanted:
        given["cpu"] = wanted["cpu"]
    if "memory" in wanted:
        given["memory"] = wanted["memory"]
    if "gpu" in wanted:
        given["gpu"] = wanted["gpu"]
    return {
        kind: parse_quantity(kind, str(amount)) for kind, amount in (given or {"cpu": 1}).items()
    }


def _terms(wanted: Wanted) -> lpb.Terms:
    chosen = [name for name in ("start", "deadline", "immediate") if wanted.get(name)]
    if len(chosen) > 1:
        raise ValueError(f"{' and '.join(chosen)} exclude one another")
    if "not_before" in wanted and "deadline" not in wanted:
        raise ValueError("not_before goes with deadline")
    if "start" in wanted:
        at = to_timestamp(instant_ms(wanted["start"]))
        return lpb.Terms(advance=lpb.AdvanceTerms(start_time=at))
    if "deadline" in wanted:
        terms = lpb.DeadlineTerms(deadline_time=to_timestamp(instant_ms(wanted["deadline"])))
        if "not_before" in wanted:
            terms.earliest_start_time.CopyFrom(to_timestamp(instant_ms(wanted["not_before"])))
        return lpb.Terms(deadline=terms)
    if wanted.get("immediate"):
        return lpb.Terms(immediate=lpb.ImmediateTerms())
    return lpb.Terms(best_effort=lpb.BestEffortTerms())


def _dependencies(wanted: Wanted) -> list[lpb.Dependency]:
    succeeded, ended = lpb.Dependency.CONDITION_SUCCEEDED, lpb.Dependency.CONDITION_ENDED
    return [
        *(lpb.Dependency(lease=full(x), condition=succeeded) for x in wanted.get("after", ())),
        *(lpb.Dependency(lease=full(x), condition=ended) for x in wanted.get("after_any", ())),
    ]
