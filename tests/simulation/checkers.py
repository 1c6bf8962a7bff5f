"""What must hold at every step and in the end, told apart from the code that is to keep it.

Nothing here asks a service: the truth is read from the database's rows, from the nodes' hardware
and from what clients were told, and judged by rules written anew. A violation ends the run.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any, Final

from tests.simulation.clients import Told, Watcher
from tests.simulation.cluster import POOL, Cluster
from tests.simulation.node import Run

from tenure.admission.v1 import lease_pb2 as lpb
from tenure_agent.work import State
from tenure_runtime.rpc.wire import bare, to_millis

S = lpb.Lease
WAITS: Final = frozenset({S.STATE_PENDING, S.STATE_QUEUED})
ENDED: Final = frozenset({S.STATE_DONE, S.STATE_FAILED, S.STATE_CANCELLED, S.STATE_REJECTED})
LATE_MS: Final = 1_000
"""How late a booked start may be while nothing goes wrong."""
CALM_MS: Final = 20_000
"""For how long nothing must have gone wrong before a start counts as undisturbed."""


class Violated(AssertionError):
    """A promise was broken."""


class Checkers:
    """All checks of one run."""

    def __init__(self, told: Told) -> None:
        self.told = told
        self.cluster: Cluster
        self._fenced: dict[tuple[str, str], int] = {}
        self._parsed: dict[str, tuple[bytes, lpb.Lease]] = {}
        self._versions: dict[str, lpb.Lease] = {}
        self._seen: dict[str, list[tuple[int, int]]] = {}
        self._revision = -1
        self.watcher: Watcher | None = None
        self.calm: list[tuple[int, int]] = []
        self.runs: list[Run] = []
        self.starts_checked = 0

    def attend(self, cluster: Cluster) -> None:
        """Begin to look."""
        self.cluster = cluster
        cluster.world.hooks.append(self._every_step)
        for node in cluster.nodes.values():
            node.on_change = self._work_changed

    def fail(self, text: str) -> None:
        """End the run."""
        self.cluster.world.say(f"VIOLATED   {text}")
        raise Violated(text)

    # Each transaction.

    def before(self, store: str, method: str, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """Look into a change of the slot table at the moment that it takes effect."""
        if store != "slots" or method != "change":
            return arguments
        pool, use, *rest = arguments
        claim = inspect.getclosurevars(use).nonlocals.get("claim")

        async def judged(opened: Any) -> Any:
            result = await use(opened)
            if claim is not None:
                self._check_epoch("slots", claim.scope, claim.epoch, "a plan")
            return result

        return (pool, judged, *rest)

    def after(self, store: str, method: str, arguments: tuple[Any, ...], result: Any) -> None:
        """Judge a transaction that took effect."""
        match store, method:
            case (("leases" | "agents"), "fence"):
                self._fence(store, *arguments)
            case "slots", "acquire_epoch":
                self._fence(store, arguments[0], result)
            case "leases", "record":
                asked = arguments[0]
                self._check_epoch(store, asked.scope, asked.epoch, "transitions")
            case "agents", "dispatch":
                asked = arguments[0]
                self._check_epoch(store, asked.scope, asked.epoch, "commands")
                for command, reason in zip(asked.commands, result.reasons, strict=True):
                    text = f"command    {command.command_id} to {command.agent} {reason}"
                    self.cluster.world.say(text.rstrip())
            case "agents", "record":
                for report in arguments[0].reports:
                    kind = f"{report.kind.value} {report.command_id}"
                    text = f"report     {report.report_id} {tuple(report.slot)} {kind}"
                    self.cluster.world.say(text.rstrip())
            case "agents", "declare_lost":
                for agent in result:
                    self._check_lost(agent)
            case _:
                pass
        if store == "leases" and method not in ("get", "page", "answered"):
            self._check_leases()

    def _fence(self, store: str, scope: str, epoch: int) -> None:
        known = self._fenced.get((store, scope), 0)
        self._fenced[store, scope] = max(known, epoch)

    def _check_epoch(self, store: str, scope: str, epoch: int, what: str) -> None:
        fenced = self._fenced.get((store, scope), 0)
        if epoch < fenced:
            self.fail(f"P5 {store} took {what} of epoch {epoch} after {fenced} had fenced")

    def _check_lost(self, agent: str) -> None:
        """P7: work has ended before its agent is declared lost (unless it is to be kept)."""
        for run in self.cluster.nodes[agent].living():
            if not run.keep_on_loss:
                self.fail(f"P7 {agent} was declared lost while {run.key} runs there")

    # The lease book.

    def leases(self) -> dict[str, lpb.Lease]:
        """Return every stored lease, read from its bytes."""
        rows = self.cluster.stores.leases._rows
        for name, row in rows.items():
            known = self._parsed.get(name)
            if known is None or known[0] is not row.body:
                self._parsed[name] = (row.body, lpb.Lease.FromString(row.body))
        return {name: self._parsed[name][1] for name in rows}

    def _check_leases(self) -> None:
        leases = self.leases()
        self._check_created(leases)
        self._check_usage(leases)
        for name, lease in leases.items():
            before = self._versions.get(name)
            if before is not lease:
                self._versions[name] = lease
                at = self.cluster.database_clock.now_ms()
                self._seen.setdefault(name, []).append((at, lease.state))
                if before is not None:
                    self._check_step(before, lease)

    def _check_created(self, leases: Mapping[str, lpb.Lease]) -> None:
        for asked in self.told.asked:
            if asked.lease and asked.lease not in leases:
                self.fail(f"P2 lease {asked.lease} was acknowledged and is lost")
        numbers: dict[str, str] = {}
        for name, lease in leases.items():
            other = numbers.setdefault(lease.labels["number"], name)
            if other != name:
                self.fail(f"P2 one request made two leases, {other} and {name}")

    def _check_step(self, before: lpb.Lease, after: lpb.Lease) -> None:
        name = bare(after.name)
        self.cluster.world.say(
            f"lease      {name} {S.State.Name(after.state)[6:]} v{after.version} "
            f"attempt {after.attempt} {after.reason}"
        )
        if after.version <= before.version:
            self.fail(f"P2 {name} went from version {before.version} to {after.version}")
        if before.state in ENDED:
            self.fail(f"P2 {name} had ended and was changed")
        if after.attempt < before.attempt:
            self.fail(f"P2 {name} went back to attempt {after.attempt}")
        leaves = after.state in ENDED or after.state in WAITS
        if leaves and before.state not in WAITS:
            for run in self._living_of(name):
                self.fail(f"P2 {name} left its nodes while {run.key} runs on {run.node}")
        self._check_hold(before, after)
        if after.state in ENDED and not after.reason:
            self.fail(f"P3 {name} ended and nobody is told why")
        if after.state == S.STATE_DONE and after.reason == "COMPLETED":
            self._check_completed(after)

    def _check_hold(self, before: lpb.Lease, after: lpb.Lease) -> None:
        name, waits = bare(after.name), after.HasField("hold_expire_time")
        if waits and after.state in (S.STATE_STARTING, S.STATE_ACTIVE):
            self.fail(f"P3 {name} starts and nobody confirmed it")
        if waits and not before.HasField("hold_expire_time"):
            self.fail(f"P3 {name} was confirmed and is to be confirmed again")
        if after.reason == "HOLD_EXPIRED" and not waits:
            self.fail(f"P3 {name} was confirmed and is given up")
        if name in self.told.confirmed and waits:
            self.fail(f"P3 {name} was confirmed, as its owner was told, and is not")

    def _check_completed(self, lease: lpb.Lease) -> None:
        """Work that counts as complete has run to its own end, on every slot."""
        if not lease.HasField("work"):
            return
        name = bare(lease.name)
        for rank in range(lease.node_count):
            key = (name, lease.attempt, rank)
            done = [run for run in self.runs if run.key == key and run.exit_code == 0]
            if not done:
                self.fail(f"P2 {name} counts as complete, but slot {rank} never ended well")

    def _check_usage(self, leases: Mapping[str, lpb.Lease]) -> None:
        right: dict[tuple[str, str, str], int] = {}
        for name, lease in leases.items():
            holds = lease.state not in WAITS and lease.state not in ENDED
            if holds is not lease.HasField("charge_interval"):
                state = S.State.Name(lease.state)
                self.fail(f"P6 {name} is {state} and charged={not holds}")
            if not holds:
                continue
            amounts = {kind: n * lease.node_count for kind, n in lease.amounts.items()}
            for kind, amount in [*amounts.items(), ("held_leases", 1)]:
                for account in (("owner", lease.owner), ("project", lease.project)):
                    key = (*account, kind)
                    right[key] = right.get(key, 0) + amount
        stored = {key: n for key, n in self.cluster.stores.leases._usage.items() if n}
        if stored != {key: n for key, n in right.items() if n}:
            self.fail(f"P6 usage is {stored}, but the charged leases add up to {right}")

    # The slot table.

    def _every_step(self) -> None:
        state = self.cluster.stores.slots._pools.get(POOL)
        if state is not None and state.revision != self._revision:
            self._revision = state.revision
            self._check_capacity(state)

    def _check_capacity(self, state: Any) -> None:
        now = self.cluster.database_clock.now_ms()
        by_node: dict[str, list[Any]] = {}
        for row in state.rows.values():
            if not row.displaced and row.interval.end > now:
                by_node.setdefault(row.node, []).append(row)
        for name, rows in by_node.items():
            steps = state.nodes[name].capacity
            instants = {max(row.interval.start, now) for row in rows} | {
                at for at, _ in steps if at > now
            }
            for at in sorted(instants):
                has = next((dict(a) for since, a in reversed(steps) if since <= at), {})
                held = _sum(
                    dict(r.amounts) for r in rows if r.interval.start <= at < r.interval.end
                )
                over = {kind: n for kind, n in held.items() if n > has.get(kind, 0)}
                if over:
                    self.fail(f"P1 {name} holds {over} of {has} at {at - now} ms from now")

    # The nodes.

    def _living_of(self, lease: str) -> Iterable[Run]:
        for node in self.cluster.nodes.values():
            for run in node.living():
                if run.key.lease == lease:
                    yield run

    def _work_changed(self, run: Run) -> None:
        if run.began_ms is not None and run not in self.runs:
            self.runs.append(run)
            self._check_alone(run)
            self._check_booked(run)
        self._check_node(run.node)

    def _check_alone(self, run: Run) -> None:
        for other in self._living_of(run.key.lease):
            if other is run:
                continue
            if other.key.attempt != run.key.attempt or other.key.rank == run.key.rank:
                self.fail(f"P2 {run.key} on {run.node} runs beside {other.key} on {other.node}")

    def _check_booked(self, run: Run) -> None:
        """No command goes out before its booking is acknowledged, and none outlives it."""
        state = self.cluster.stores.slots._pools[POOL]
        lease, attempt, rank = run.key
        for row in state.rows.values():
            if (row.lease, row.attempt, row.rank, row.node) == (lease, attempt, rank, run.node):
                return
        self.fail(f"P1 {tuple(run.key)} begins on {run.node}, where nothing is booked for it")

    def _check_node(self, name: str) -> None:
        node = self.cluster.nodes[name]
        leases = self.leases()
        held: list[dict[str, int]] = []
        for run in node.living():
            amounts = dict(leases[run.key.lease].amounts)
            # To hear that it is to end a suspended process must run, for its grace.
            if run.state is State.SUSPENDED or run.ends_from_sleep:
                amounts = {kind: n for kind, n in amounts.items() if kind == "memory"}
            held.append(amounts)
        has = self.cluster.plan.capacity
        over = {kind: n for kind, n in _sum(held).items() if n > has.get(kind, 0)}
        if over:
            running = [tuple(run.key) for run in node.living()]
            self.fail(f"P1 node {name} really runs {over} of {has}: {running}")

    # In the end.

    def unsettled(self) -> list[str]:
        """Return what keeps the run from being over: leases that go on, things left behind."""
        left = [
            f"lease {name} {S.State.Name(lease.state)[6:]} {lease.reason}"
            for name, lease in self.leases().items()
            if lease.state not in ENDED
        ]
        state = self.cluster.stores.slots._pools.get(POOL)
        left += [f"reservation {row}" for row in sorted(state.rows if state else ())]
        for name, node in self.cluster.nodes.items():
            left += [f"work {tuple(run.key)} on {name}" for run in node.living()]
        return left

    def final(self) -> None:
        """Judge the whole run; call when all has settled."""
        left = self.unsettled()
        if left:
            self.fail(f"P2 still there long after all faults: {left}")
        self._check_leases()
        for text in self.told.contradictions:
            self.fail(f"P2 {text}")
        leases = self.leases()
        for asked in self.told.asked:
            if not asked.lease and not asked.refusal:
                self.fail(f"P2 request {asked.number} was never answered")
        for name, lease in leases.items():
            if lease.terms.HasField("advance"):
                self._check_start(name, lease)
        if self.watcher is not None:
            self._check_watches(self.watcher)

    def _check_start(self, name: str, lease: lpb.Lease) -> None:
        """P3: what was accepted starts in time where nothing went wrong, or its owner was told."""
        start = to_millis(lease.terms.advance.start_time)
        # By the true time: the wall clocks of those who recorded it may be hours off.
        seen = self._seen[name]
        booked = [at for at, state in seen if state == S.STATE_SCHEDULED]
        if not booked or booked[0] >= start:
            return
        if not self._was_calm(start - CALM_MS, start + LATE_MS):
            return
        self.starts_checked += 1
        by_then = [state for at, state in seen if at < start + LATE_MS]
        on_time = S.STATE_STARTING in by_then or S.STATE_ACTIVE in by_then
        if not on_time and by_then[-1] == S.STATE_SCHEDULED:
            self.fail(f"P3 {name} was accepted for {start} and did not start, nor was it told why")

    def _was_calm(self, begin: int, end: int) -> bool:
        return any(since <= begin and end <= until for since, until in self.calm)

    def _truths(self) -> dict[str, list[str]]:
        """Return every change of each feed, from the beginning."""
        stores = self.cluster.stores
        return {
            "leases": [
                f"{change.lease_id}@{lpb.Lease.FromString(change.body).version}"
                for change in stores.leases._feed._changes
            ],
            "slots": [_slot_change(change) for change in stores.slots._feed],
            "reports": [item.report_id for _, item, _ in stores.agents._report_feed.changes],
        }

    def watches_behind(self) -> bool:
        """Say whether a watch has yet to hear of something."""
        if self.watcher is None:
            return False
        truths = self._truths()
        return any(
            not feed.first or len(feed.heard) < len(truths[name]) - _skipped(name, feed.first)
            for name, feed in self.watcher.feeds.items()
        )

    def _check_watches(self, watcher: Watcher) -> None:
        truths = self._truths()
        for name, feed in watcher.feeds.items():
            truth = truths[name][_skipped(name, feed.first) :]
            if feed.heard != truth:
                pairs = enumerate(zip(feed.heard, truth, strict=False))
                shorter = min(len(feed.heard), len(truth))
                at = next((i for i, (a, b) in pairs if a != b), shorter)
                self.fail(
                    f"P8 the watch of {name} differs at {at}: heard {feed.heard[at : at + 3]}, "
                    f"was {truth[at : at + 3]} ({len(feed.heard)} of {len(truth)})"
                )


def _skipped(name: str, token: str) -> int:
    """Return how many changes lie before a token of a memory store."""
    if name == "leases":
        from tenure_runtime.postgres.position import parse_token

        return parse_token(token).tx
    return int(token.removeprefix("m"))


def _slot_change(change: Any) -> str:
    if change.row is not None:
        what = change.row.row.id
    elif change.released:
        what = change.released
    else:
        what = change.node.id
    return f"{change.revision}:{what}"


def _sum(amounts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for each in amounts:
        for kind, n in each.items():
            total[kind] = total.get(kind, 0) + n
    return total
