"""What a live pool tells: its queue, what runs, what is booked, and what happened."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final, TextIO

from tenure.admission.v1 import admission_pb2 as apb
from tenure.admission.v1 import lease_pb2 as lpb
from tenure.registry.v1 import registry_pb2 as gpb
from tenure.scheduler.v1 import scheduler_pb2 as spb
from tenure.slottable.v1 import slottable_pb2 as tpb
from tenure_cli.connection import Connection, all_pages, run
from tenure_cli.times import local_now, parse_instant
from tenure_core.agents.states import AgentState
from tenure_core.leases.states import ENDED, PLACED, WAITING, LeaseState
from tenure_core.planning.snapshot import Blocked, LeaseView, NodeView, ReservationView, Snapshot
from tenure_core.resources import ResourceVector
from tenure_core.timebase import Millis
from tenure_runtime.rpc.wire import bare, to_millis, to_timestamp
from tenure_scheduler.convert.agents import to_agent
from tenure_scheduler.convert.leases import from_state, to_lease
from tenure_scheduler.convert.slots import to_node, to_row
from tenure_scheduler.entries import LeaseEntry
from tenure_sim.lived import as_it_was
from tenure_sim.site import Site
from tenure_sim.traces_json import write_json
from tenure_sim.workload import SimLease, Workload

_PAGE: Final = 1_000
_ALL: Final = 1_000_000
_LIVE: Final = [from_state(state) for state in LeaseState if state not in ENDED]
_HELD_BACK: Final = ("DEPENDENCY", "QUOTA")
"""How the reasons begin for which a lease waits although capacity may be there."""


@dataclass(frozen=True, slots=True)
class LivePool:
    """A pool at one instant: the snapshot, and each live lease as admission tells it."""

    snapshot: Snapshot
    leases: dict[str, LeaseEntry]


async def live_pool(connection: Connection, pool: str) -> LivePool:
    """Read a pool's nodes, reservations and live leases, in this order, a page at a time.

    The parts are read one after the other, not in one transaction: what changes meanwhile may be
    seen in some of them only, as by any leader that catches up.
    """
    nodes = await _nodes(connection, pool)
    rows, now = await _rows(connection, pool)
    leases = {entry.lease.id: entry for entry in await _leases(connection, pool, _LIVE)}
    held_back = await _held_back(connection, pool)
    ordered = sorted(leases.values(), key=lambda each: (each.lease.created, each.lease.id))
    views = tuple(
        LeaseView.of(
            entry.lease,
            arrival=number,
            blocked=held_back.get(entry.lease.id) if entry.lease.state in WAITING else None,
            run_started=entry.present_run() if entry.lease.state in PLACED else None,
        )
        for number, entry in enumerate(ordered)
    )
    return LivePool(Snapshot(now, nodes, rows, views), leases)


async def _nodes(connection: Connection, pool: str) -> tuple[NodeView, ...]:
    client, slots = await connection.slottable()

    async def page(token: str) -> tpb.ListNodesResponse:
        request = tpb.ListNodesRequest(pool=pool, page_size=_PAGE, page_token=token)
        return await client.call(slots.ListNodes, request)

    away = await _agents_away(connection, pool)
    found = []
    for wire in await all_pages(page, "nodes", _ALL):
        node = to_node(wire)
        is_open = node.state.value == "OPEN" and node.agent not in away
        found.append(replace(node.view(), schedulable=is_open))
    return tuple(found)


async def _agents_away(connection: Connection, pool: str) -> Collection[str]:
    """Return the agents that are not alive: their nodes take no work."""
    client, registry = await connection.registry()

    async def page(token: str) -> gpb.ListAgentsResponse:
        request = gpb.ListAgentsRequest(pool=pool, page_size=_PAGE, page_token=token)
        return await client.call(registry.ListAgents, request)

    agents = [to_agent(wire) for wire in await all_pages(page, "agents", _ALL)]
    return frozenset(agent.id for agent in agents if agent.state is not AgentState.ALIVE)


async def _rows(connection: Connection, pool: str) -> tuple[tuple[ReservationView, ...], Millis]:
    client, slots = await connection.slottable()
    times: list[Millis] = []

    async def page(token: str) -> tpb.ListReservationsResponse:
        request = tpb.ListReservationsRequest(pool=pool, page_size=_PAGE, page_token=token)
        answer = await client.call(slots.ListReservations, request)
        times.append(to_millis(answer.as_of))
        return answer

    rows = await all_pages(page, "reservations", _ALL)
    return tuple(to_row(row) for row in rows), max(times)


async def _leases(
    connection: Connection,
    pool: str,
    states: Collection[lpb.Lease.State.ValueType] = (),
    since: Millis | None = None,
    *,
    whole_history: bool = False,
) -> list[LeaseEntry]:
    client, admission = await connection.admission()

    async def page(token: str) -> apb.ListLeasesResponse:
        request = apb.ListLeasesRequest(pool=pool, page_size=_PAGE, page_token=token, states=states)
        if since is not None:
            request.create_interval.start_time.CopyFrom(to_timestamp(since))
        return await client.call(admission.ListLeases, request)

    leases = await all_pages(page, "leases", _ALL)
    return [to_lease(wire, whole_history=whole_history) for wire in leases]


async def booked_leases(connection: Connection, pool: str) -> list[LeaseEntry]:
    """Return the leases whose capacity is booked and whose time has not come."""
    return await _leases(connection, pool, [from_state(LeaseState.SCHEDULED)])


async def _held_back(connection: Connection, pool: str) -> dict[str, Blocked]:
    client, scheduler = await connection.scheduler()
    request = spb.GetQueueRequest(pool=f"pools/{pool}", limit=10_000)
    answer = await client.call(scheduler.GetQueue, request)
    return {
        bare(entry.lease): Blocked(entry.reason, entry.message)
        for entry in answer.entries
        if entry.reason.startswith(_HELD_BACK)
    }


def export_history(pool: str, since: str, kinds: Collection[str], out: TextIO) -> str:
    """Write what happened in a pool as a trace; return a sentence on it.

    How long a lease ran, and what its owner gave up, is said by `tenure_sim.lived`. `kinds`, unless
    empty, are the only kinds of resources that are exported.
    """
    from_ms = None
    if since:
        now = local_now()
        written = since[1:] if since.startswith("-") else since
        at = parse_instant(f"+{written}" if since.startswith("-") else written, now)
        distance = at - now
        from_ms = round((now - distance if since.startswith("-") else at).timestamp() * 1_000)

    async def read(connection: Connection) -> tuple[list[LeaseEntry], tuple[NodeView, ...]]:
        nodes = await _nodes(connection, pool)
        return await _leases(connection, pool, since=from_ms, whole_history=True), nodes

    entries, nodes = run(read)
    leases = [_of_kinds(as_it_was(entry.lease), kinds) for entry in entries]
    site = Site(
        tuple(
            replace(node, capacity=((0, _only(node.capacity[-1][1], kinds)),))
            for node in nodes
            if node.capacity
        )
    )
    leases.sort(key=lambda lease: (lease.arrival, lease.id))
    workload = Workload.of(f"history of {pool}", leases)
    write_json(workload, out, site=site if site.nodes else None)
    return f"{len(leases):,} leases, {len(site.nodes):,} nodes"


def _of_kinds(lease: SimLease, kinds: Collection[str]) -> SimLease:
    return replace(lease, spec=replace(lease.spec, amounts=_only(lease.spec.amounts, kinds)))


def _only(amounts: ResourceVector, kinds: Collection[str]) -> ResourceVector:
    if not kinds:
        return amounts
    return ResourceVector({kind: amount for kind, amount in amounts.items() if kind in kinds})
