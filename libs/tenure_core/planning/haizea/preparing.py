"""Brings disk images to nodes before leases run there, over the one link of the repository.

Transfers are strictly serial and are never moved. Best-effort and immediate leases take the first
gap (and may share a transfer that has not begun, or an image that is on the node already); advance
reservations take the last gap before their start.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise

from tenure_core.planning.haizea.entries import Entry, EntryKind, EntryState, HaizeaLease
from tenure_core.planning.haizea.migrating import network, transfer_time
from tenure_core.planning.haizea.settings import HaizeaRules
from tenure_core.planning.haizea.timing import NET_IN


class Source(Enum):
    """Where a vnode's image comes from."""

    NEW = "new"
    SHARED = "shared"
    CACHED = "cached"


@dataclass(frozen=True, slots=True)
class Earliest:
    """From when a lease may start on a node, given where its image comes from."""

    at: int
    source: Source
    transfer: Entry | None = None


@dataclass(slots=True)
class _Cached:
    """An image that stays on a node for others; `timeout` is the end of its last known user."""

    size: int
    timeout: int
    users: set[int] = field(default_factory=set)


class Images:
    """The repository's transfers and the images on the nodes."""

    def __init__(self, rules: HaizeaRules) -> None:
        self._rules = rules
        self._transfers: list[Entry] = []
        self._cached: dict[int, dict[str, _Cached]] = {}

    def earliest(self, lease: HaizeaLease, nodes: list[int], now: int) -> dict[int, Earliest]:
        """Return from when a new lease may start on each node."""
        rules = self._rules
        if not rules.transfers or lease.image is None:
            return dict.fromkeys(nodes, Earliest(now, Source.CACHED))
        length = self._length(lease, lease.count)
        slot = self._first_gap(now, length)
        found = dict.fromkeys(nodes, Earliest(slot + length, Source.NEW))
        shared = self._shareable(lease, now, slot + length)
        for number in nodes:
            if rules.caches and lease.image[0] in self._cached.get(number, {}):
                found[number] = Earliest(now, Source.CACHED)
            elif shared is not None:
                found[number] = Earliest(shared.end, Source.SHARED, shared)
        return found

    def prepare(
        self, lease: HaizeaLease, run: Entry, earliest: dict[int, Earliest], now: int
    ) -> list[Entry]:
        """Return the new transfers of a lease placed as soon as possible; the others it joins."""
        if not self._rules.transfers or lease.image is None:
            return []
        lacking: list[int] = []
        for vnode in sorted(run.mapping):
            number = run.mapping[vnode]
            found = earliest[number]
            if found.source is Source.CACHED:
                self._use(lease, number, run)
            elif found.source is Source.SHARED and found.transfer is not None:
                found.transfer.targets.setdefault(number, []).append((lease.id, vnode))
                if found.transfer not in lease.transfers:
                    lease.transfers.append(found.transfer)
            else:
                lacking.append(vnode)
        if not lacking:
            return []
        whole = self._length(lease, lease.count)
        start = self._first_gap(now, whole)
        return [self._new(lease, run, lacking, start, self._length(lease, len(lacking)))]

    def prepare_by(self, lease: HaizeaLease, run: Entry, now: int) -> list[Entry] | None:
        """Return the transfers of a lease that starts at its time, None when there is no place."""
        if not self._rules.transfers or lease.image is None:
            return []
        lacking: list[int] = []
        for vnode in sorted(run.mapping):
            cached = self._cached.get(run.mapping[vnode], {}).get(lease.image[0])
            if self._rules.caches and cached is not None and cached.timeout >= run.start:
                self._use(lease, run.mapping[vnode], run)
            else:
                lacking.append(vnode)
        if not lacking:
            return []
        length = self._length(lease, len(lacking))
        start = self._last_gap(run.start, length)
        if start is None or start < now:
            return None
        return [self._new(lease, run, lacking, start, length)]

    def cancel(self, lease: HaizeaLease) -> list[Entry]:
        """Take a lease out of its transfers; return those that nobody needs any more.

        One that is under way for others too stays as it is.
        """
        dropped: list[Entry] = []
        for transfer in lease.transfers:
            users = {user for pairs in transfer.targets.values() for user, _ in pairs}
            if transfer.state is not EntryState.SCHEDULED and users != {lease.id}:
                continue
            if users == {lease.id}:
                dropped.append(transfer)
                self._transfers.remove(transfer)
                continue
            for number in list(transfer.targets):
                rest = [pair for pair in transfer.targets[number] if pair[0] != lease.id]
                if rest:
                    transfer.targets[number] = rest
                else:
                    del transfer.targets[number]
        lease.transfers = []
        return dropped

    def arrived(self, transfer: Entry, ends: dict[int, int]) -> None:
        """Take note that a transfer is done; `ends` says when each lease is to end."""
        self._transfers.remove(transfer)
        if not self._rules.caches:
            return
        name, size = transfer.image
        for number, pairs in transfer.targets.items():
            timeout = max(ends.get(lease, transfer.end) for lease, _ in pairs)
            here = self._cached.setdefault(number, {})
            if name in here:
                here[name].timeout = max(here[name].timeout, timeout)
            elif self._make_room(here, size, transfer.end):
                here[name] = _Cached(size, timeout)
            if name in here:
                here[name].users.update(lease for lease, _ in pairs)

    def released(self, lease: HaizeaLease) -> None:
        """Take note that a lease uses no image any more."""
        for here in self._cached.values():
            for cached in here.values():
                cached.users.discard(lease.id)

    def _make_room(self, here: dict[str, _Cached], size: int, _now: int) -> bool:
        limit = self._rules.cache_size
        if limit < 0:
            return True
        unused = sorted((c.timeout, name) for name, c in here.items() if not c.users)
        while sum(cached.size for cached in here.values()) + size > limit and unused:
            del here[unused.pop(0)[1]]
        return sum(cached.size for cached in here.values()) + size <= limit

    def _use(self, lease: HaizeaLease, number: int, run: Entry) -> None:
        assert lease.image is not None
        cached = self._cached.get(number, {}).get(lease.image[0])
        if cached is not None:
            cached.users.add(lease.id)
            cached.timeout = max(cached.timeout, run.end)

    def _length(self, lease: HaizeaLease, copies: int) -> int:
        assert lease.image is not None
        rules = self._rules
        once = transfer_time(rules, lease.image[1])
        if rules.forced_transfer is not None:
            once = rules.forced_transfer
        return once if rules.multicast else once * copies

    def _shareable(self, lease: HaizeaLease, now: int, before: int) -> Entry | None:
        rules = self._rules
        if not (rules.multicast and rules.avoids_redundant):
            return None
        found = [
            transfer
            for transfer in self._transfers
            if transfer.image == lease.image
            and transfer.state is EntryState.SCHEDULED
            and now < transfer.end < before
        ]
        return min(found, key=lambda transfer: transfer.end, default=None)

    def _first_gap(self, now: int, length: int) -> int:
        transfers = self._transfers
        if not transfers or now + length <= transfers[0].start:
            return now
        for transfer, following in pairwise(transfers):
            if following.start - transfer.end >= length:
                return transfer.end
        return transfers[-1].end

    def _last_gap(self, by: int, length: int) -> int | None:
        """Return the latest start of a transfer that ends by `by`.

        The later branch never looks before the first transfer unless it ends right at `by` there.
        """
        transfers, end = self._transfers, by
        for transfer in reversed(transfers):
            if transfer.end <= end - length:
                return end - length
            end = min(end, transfer.start)
        before_first = end - length
        if transfers and end != by and not self._rules.first_release:
            return None
        return before_first

    def _new(
        self, lease: HaizeaLease, run: Entry, vnodes: list[int], start: int, length: int
    ) -> Entry:
        incoming = network(lease, NET_IN, self._rules.bandwidth)
        nodes = {run.mapping[vnode]: incoming for vnode in vnodes}
        transfer = Entry(lease, EntryKind.TRANSFER, start, start + length, nodes, tuple(vnodes))
        assert lease.image is not None
        transfer.image = lease.image
        for vnode in vnodes:
            transfer.targets.setdefault(run.mapping[vnode], []).append((lease.id, vnode))
        self._transfers.append(transfer)
        self._transfers.sort(key=lambda known: known.start)
        lease.transfers.append(transfer)
        return transfer
