"""The one way into the simulation: a workload, a site, policies and a seed in, a result out."""

from __future__ import annotations

from tenure_core.policies.admission import AcceptAll
from tenure_core.policies.bundle import Policies
from tenure_core.policies.ordering import FIFO
from tenure_core.policies.preemption import NoPreemption
from tenure_core.policies.pricing import Free
from tenure_sim.counting import simulate_counted
from tenure_sim.progress import Progress
from tenure_sim.result import SimulationResult
from tenure_sim.scores import score
from tenure_sim.site import Site
from tenure_sim.workload import Workload


def simulate(
    workload: Workload,
    site: Site,
    policies: Policies,
    seed: int = 0,
    progress: Progress | None = None,
) -> SimulationResult:
    """Run the workload on the site to its end and return what became of each lease.

    Deterministic: nothing is drawn, `seed` is carried into the result so that a run can be told
    apart from one of a generated workload. Interchangeable capacity is planned by counts; anything
    else is bound to nodes by the planner that the live scheduler uses.
    """
    slots = _counted_slots(workload, site, policies)
    if slots is None:
        from tenure_sim.binding import simulate_bound  # only here: what counts need not load it

        return simulate_bound(workload, site, policies, seed, progress=progress)
    outcome = simulate_counted(workload, slots, policies, progress=progress)
    starts = outcome.starts
    count = len(workload)
    states = ["DONE" if start is not None else "REJECTED" for start in starts]
    refused = "NOT_AVAILABLE_AT_START"
    wanted = workload.starts
    kinds = (
        ["BEST_EFFORT"] * count
        if wanted is None
        else ["BEST_EFFORT" if at is None else "ADVANCE" for at in wanted]
    )
    preemptions = [0] * count
    return SimulationResult(
        workload=workload,
        policies=str(policies.backfilling),
        seed=seed,
        states=states,
        reasons=["" if start is not None else refused for start in starts],
        starts=starts,
        ends=outcome.ends,
        preemptions=preemptions,
        kinds=kinds,
        nodes=None,
        scores=score(
            workload,
            slots=slots,
            kinds=kinds,
            states=states,
            starts=starts,
            ends=outcome.ends,
            preemptions=preemptions,
        ),
    )


def _counted_slots(workload: Workload, site: Site, policies: Policies) -> int | None:
    """Return the number of slots when planning by counts decides as binding to nodes would."""
    if workload.specs is not None or workload.cancels is not None:
        return None
    if policies.depth_max is not None:
        return None
    if not isinstance(policies.admission, AcceptAll) or not isinstance(policies.pricing, Free):
        return None
    if policies.ordering != FIFO or policies.overheads.shutdown_ms:
        return None
    if policies.partial_starts:
        return None
    if workload.starts is not None and not isinstance(policies.preemption, NoPreemption):
        return None
    slots = site.slots_of(workload.slot)
    widest = max(workload.widths, default=0)
    return slots if slots is not None and widest <= slots else None
