"""People and programs that use the control plane: they create, change, cancel, ask again and watch.

Each request carries a request id and is sent until it is answered, the same each time, as the SDK
does. What was answered is kept for the checkers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import grpc
from tests.simulation.cluster import POOL, Cluster
from tests.simulation.world import World

from tenure.admission.v1 import admission_pb2 as apb
from tenure.admission.v1 import admission_pb2_grpc as agrpc
from tenure.admission.v1 import lease_pb2 as lpb
from tenure.registry.v1 import registry_pb2 as gpb
from tenure.registry.v1 import registry_pb2_grpc as rgrpc
from tenure.slottable.v1 import slottable_pb2 as spb
from tenure.slottable.v1 import slottable_pb2_grpc as sgrpc
from tenure.type.v1 import work_pb2
from tenure_core.errors import AlreadyExists, DomainError, Unavailable
from tenure_runtime.ids import RandomIds
from tenure_runtime.rpc.status import RemoteFailure
from tenure_runtime.rpc.wire import bare, to_duration, to_timestamp

AGAIN_S: Final = (0.05, 1.0)
TRIES_MAX: Final = 400


@dataclass
class Asked:
    """One request to create a lease, and what became of it."""

    number: int
    owner: str
    request: apb.CreateLeaseRequest
    answer: lpb.Lease | None = None
    refusal: str = ""
    answered_ms: int = 0

    @property
    def lease(self) -> str:
        """Return the lease's id, empty until it is known."""
        return bare(self.answer.name) if self.answer is not None else ""


@dataclass
class Told:
    """What clients were told, for the checkers to hold against the truth."""

    asked: list[Asked] = field(default_factory=list)
    contradictions: list[str] = field(default_factory=list)
    cancelled: set[str] = field(default_factory=set)
    confirmed: set[str] = field(default_factory=set)


def is_held(asked: Asked) -> bool:
    """Say whether a lease was created to be confirmed."""
    return asked.answer is not None and asked.answer.HasField("hold_expire_time")


def is_unclear(error: DomainError) -> bool:
    """Say whether nobody knows if the call had its effect, so that it is sent again."""
    return isinstance(error, Unavailable) or (
        isinstance(error, RemoteFailure) and error.code is grpc.StatusCode.DEADLINE_EXCEEDED
    )


class User:
    """One owner of leases."""

    def __init__(self, cluster: Cluster, name: str, told: Told, most: int) -> None:
        self._cluster = cluster
        self._world: World = cluster.world
        self._told = told
        self._most = most
        self.name = name
        self._rng = self._world.rng(f"user {name}")
        self._holds = self._world.rng(f"holds {name}")
        self._ids = RandomIds(self._rng)
        self._client = cluster.client(cluster.host(f"host-{name}"), "admission", name)
        self._stub = agrpc.AdmissionServiceStub(self._client.channel)
        self.busy = True

    async def live(self) -> None:
        """Do one thing after another until told to stop, or all leases were asked for."""
        made = 0
        while self.busy:
            await asyncio.sleep(self._rng.uniform(0.05, 2.5))
            if not self.busy:
                return
            mine = [each for each in self._told.asked if each.owner == self.name and each.lease]
            roll = self._rng.random()
            if roll < 0.6 or not mine:
                if made < self._most:
                    made += 1
                    await self._create()
            elif roll < 0.7:
                await self._cancel(self._rng.choice(mine))
            elif roll < 0.85 and (held := [each for each in mine if is_held(each)]):
                await self._confirm(self._holds.sample(held, min(2, len(held))))
            elif roll < 0.85:
                await self._update(self._rng.choice(mine))
            else:
                await self._ask_again(self._rng.choice(mine))

    async def _until_answered(self, method: Any, request: Any) -> Any:
        for _ in range(TRIES_MAX):
            again = type(request)()
            again.CopyFrom(request)
            try:
                return await self._client.call(method, again)
            except DomainError as error:
                if not is_unclear(error):
                    raise
            await asyncio.sleep(self._rng.uniform(*AGAIN_S))
        raise AssertionError(f"{request.DESCRIPTOR.name} was never answered")

    async def _create(self) -> None:
        number = len(self._told.asked)
        request = apb.CreateLeaseRequest(
            lease=self._lease(number), request_id=self._ids.request_id()
        )
        if self._rng.random() < 0.7:
            request.lease_id = f"l{number}"
        asked = Asked(number, self.name, request)
        self._told.asked.append(asked)
        try:
            answer = await self._until_answered(self._stub.CreateLease, request)
        except AlreadyExists as error:
            self._told.contradictions.append(f"request {number}: {error.reason}")
            asked.refusal = error.reason
        except DomainError as error:
            asked.refusal = error.reason
        else:
            asked.answer = answer.lease
            asked.answered_ms = self._world.now_ms()
            kind = asked.answer.terms.WhichOneof("kind")
            self._world.say(f"created    {asked.lease} {kind} by {self.name}")

    def _lease(self, number: int) -> lpb.Lease:
        rng = self._rng
        now_ms = self._cluster.database_clock.now_ms()
        duration_ms = rng.choice((1_000, 3_000, 5_000, 8_000, 12_000, 20_000))
        # What an empty pool could carry: what never fits waits for ever, by right.
        slots = rng.choice((1, 1, 1, 1, min(2, self._cluster.plan.agents)))
        lease = lpb.Lease(
            pool=POOL,
            node_count=slots,
            amounts={"cpu": rng.choice((500, 1_000, 2_000, 3_000, 4_000)), "memory": 2**30},
            duration=to_duration(duration_ms),
            labels={"number": str(number)},
            on_loss=rng.choice((0, 1, 1, 1, 2)),
            on_failure=rng.choice((0, 1, 2)),
            max_attempts=rng.choice((0, 2, 3)),
            spread=slots > 1 and rng.random() < 0.5,
        )
        if rng.random() < 0.9:
            lasts_ms = int(duration_ms * rng.choice((0.2, 0.5, 0.8, 0.95, 1.5)))
            code = rng.choice(("0", "0", "0", "0", "3"))
            manner = rng.choice(("obeys", "obeys", "stubborn"))
            lease.work.CopyFrom(work_pb2.Work(command=["work", str(lasts_ms), code, manner]))
        kind = rng.choice(("best_effort", "best_effort", "advance", "immediate", "deadline"))
        match kind:
            case "best_effort":
                lease.terms.best_effort.SetInParent()
                lease.preemptible = rng.random() < 0.8
            case "immediate":
                lease.terms.immediate.SetInParent()
            case "advance":
                start_ms = now_ms + rng.randint(3_000, 40_000)
                lease.terms.advance.start_time.CopyFrom(to_timestamp(start_ms))
                longest_ms = self._holds.choice((0, 2_500, start_ms - now_ms - 1_000))
                if longest_ms:
                    lease.hold_duration.CopyFrom(to_duration(longest_ms))
            case _:
                end_ms = now_ms + duration_ms + rng.randint(6_000, 60_000)
                lease.terms.deadline.deadline_time.CopyFrom(to_timestamp(end_ms))
        return lease

    async def _cancel(self, asked: Asked) -> None:
        request = apb.CancelLeaseRequest(
            name=f"leases/{asked.lease}", message="no longer", request_id=self._ids.request_id()
        )
        try:
            answer = await self._until_answered(self._stub.CancelLease, request)
        except DomainError as error:
            self._world.say(f"not cancelled {asked.lease}: {error.reason}")
        else:
            self._told.cancelled.add(asked.lease)
            state = lpb.Lease.State.Name(answer.lease.state)
            self._world.say(f"cancelled  {asked.lease}: {state}")

    async def _confirm(self, held: list[Asked]) -> None:
        names = [asked.lease for asked in held]
        request = apb.ConfirmLeasesRequest(
            names=[f"leases/{name}" for name in names], request_id=self._ids.request_id()
        )
        try:
            answer = await self._until_answered(self._stub.ConfirmLeases, request)
        except DomainError as error:
            self._world.say(f"not confirmed {names}: {error.reason}")
        else:
            for lease in answer.leases:
                if lease.HasField("hold_expire_time"):
                    self._told.contradictions.append(f"{lease.name} was confirmed and is not")
            self._told.confirmed.update(names)
            self._world.say(f"confirmed  {names}")

    async def _update(self, asked: Asked) -> None:
        rng = self._rng
        lease = lpb.Lease(name=f"leases/{asked.lease}")
        request = apb.UpdateLeaseRequest(lease=lease, request_id=self._ids.request_id())
        request.lease.duration.CopyFrom(to_duration(rng.choice((2_000, 6_000, 15_000, 30_000))))
        request.update_mask.paths.append("duration")
        try:
            answer = await self._until_answered(self._stub.UpdateLease, request)
        except DomainError as error:
            self._world.say(f"not updated {asked.lease}: {error.reason}")
        else:
            verdict = answer.lease.pending_change.change_id and "asked for"
            self._world.say(f"updated    {asked.lease} {verdict or 'at once'}")

    async def _ask_again(self, asked: Asked) -> None:
        """Send the request that created a lease once more: the first answer must come."""
        try:
            answer = await self._until_answered(self._stub.CreateLease, asked.request)
        except DomainError as error:
            text = f"request {asked.number} was answered before, now {error.reason}"
            self._told.contradictions.append(text)
        else:
            if answer.lease != asked.answer:
                text = f"request {asked.number} was answered otherwise before"
                self._told.contradictions.append(text)


@dataclass
class Feed:
    """One watch: how it is opened, and what came of it since its first token."""

    name: str
    watch: Callable[[str], Any]
    key_of: Callable[[Any], str]
    first: str = ""
    token: str = ""
    heard: list[str] = field(default_factory=list)


class Watcher:
    """Follows feeds across every break with their resume tokens."""

    def __init__(self, cluster: Cluster) -> None:
        here = cluster.host("host-ops")
        self._rng = cluster.world.rng("watcher")
        leases = cluster.client(here, "admission", "ops")
        slots = cluster.client(here, "slottable", "ops")
        agents = cluster.client(here, "registry", "ops")
        self._leases = agrpc.AdmissionServiceStub(leases.channel)
        self._slots = sgrpc.SlotTableServiceStub(slots.channel)
        self._agents = rgrpc.RegistryServiceStub(agents.channel)
        self._clients = {"leases": leases, "slots": slots, "reports": agents}
        self.feeds = {
            "leases": Feed("leases", self._watch_leases, _lease_key),
            "slots": Feed("slots", self._watch_slots, _slot_key),
            "reports": Feed("reports", self._watch_reports, _report_key),
        }

    def _watch_leases(self, token: str) -> Any:
        request = apb.WatchLeasesRequest(resume_token=token)
        return self._clients["leases"].stream(self._leases.WatchLeases, request)

    def _watch_slots(self, token: str) -> Any:
        request = spb.WatchReservationsRequest(pool=POOL, resume_token=token)
        return self._clients["slots"].stream(self._slots.WatchReservations, request)

    def _watch_reports(self, token: str) -> Any:
        request = gpb.WatchReportsRequest(pool=POOL, resume_token=token)
        return self._clients["reports"].stream(self._agents.WatchReports, request)

    async def _first_token(self, name: str) -> str:
        calls: dict[str, tuple[Any, Any]] = {
            "leases": (self._leases.ListLeases, apb.ListLeasesRequest(page_size=1)),
            "slots": (self._slots.ListReservations, spb.ListReservationsRequest(pool=POOL)),
            "reports": (self._agents.ListReports, gpb.ListReportsRequest(pool=POOL)),
        }
        while True:
            try:
                token: str = (await self._clients[name].call(*calls[name])).resume_token
                return token
            except DomainError:
                await asyncio.sleep(self._rng.uniform(*AGAIN_S))

    async def follow(self, feed: Feed) -> None:
        """Follow one feed for ever."""
        feed.first = feed.token = await self._first_token(feed.name)
        while True:
            try:
                async with feed.watch(feed.token) as stream:
                    async for event in stream:
                        feed.token = event.resume_token
                        key = feed.key_of(event)
                        if key:
                            feed.heard.append(key)
            except DomainError as error:
                if not is_unclear(error):
                    raise
            await asyncio.sleep(self._rng.uniform(*AGAIN_S))


def _lease_key(event: apb.WatchLeasesResponse) -> str:
    return f"{bare(event.lease.name)}@{event.lease.version}" if event.HasField("lease") else ""


def _slot_key(event: spb.WatchReservationsResponse) -> str:
    kind = event.WhichOneof("change")
    if kind is None:
        return ""
    value = getattr(event, kind)
    return f"{event.revision}:{bare(value if isinstance(value, str) else value.name)}"


def _report_key(event: gpb.WatchReportsResponse) -> str:
    return event.report.report_id if event.HasField("report") else ""
