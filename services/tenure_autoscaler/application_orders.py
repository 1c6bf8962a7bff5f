"""What applications of an elastic group shall be, from what is written about it. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import Final

from tenure_autoscaler.records import FleetBook
from tenure_autoscaler.values import ApplicationOrder, SeenApplication
from tenure_core.autoscaling.group_records import GroupState
from tenure_core.autoscaling.machines import CommandKind, MachineRole

_TOLD: Final = (CommandKind.APP_INIT, CommandKind.APP_SHUTDOWN)


def application_orders(
    state: GroupState, book: FleetBook, applications: Iterable[SeenApplication]
) -> list[ApplicationOrder]:
    """Return what the state says that applications shall be, where they are told otherwise.

    A master that is being deleted is told to stop. A worker is told of its master once that says
    where it is.
    """
    said = {each.agent: each for each in applications}
    by_token = {record.token: record for record in book.records if record.live}
    master = by_token.get(state.master_id or "")
    at = said.get(master.machine) if master else None
    address = at.address if at and master and at.incarnation == master.incarnation else ""
    members = tuple(
        sorted(
            token
            for token, known in state.records.items()
            if known.role is MachineRole.WORKER and known.last in _TOLD
        )
    )
    orders = []
    for token, known in state.records.items():
        record = by_token.get(token)
        is_master = known.role is MachineRole.MASTER
        deposed = is_master and (known.tombstone or token != state.master_id)
        if record is None or not record.incarnation or not (known.last in _TOLD or deposed):
            continue
        start = known.last is CommandKind.APP_INIT and not deposed
        if start and not is_master and not address:
            continue
        order = _named(
            ApplicationOrder(
                record.machine,
                record.incarnation,
                order_id="",
                start=start,
                machine=token,
                is_master=is_master,
                master_epoch=state.master_epoch,
                master_address="" if is_master else address,
                members=members if is_master else (),
            )
        )
        seen = said.get(record.machine)
        if seen is None or (seen.incarnation, seen.order_id) != (
            order.incarnation,
            order.order_id,
        ):
            orders.append(order)
    return orders


def _named(order: ApplicationOrder) -> ApplicationOrder:
    """Return an order with an id that is the same for the same order, and for no other."""
    text = json.dumps(asdict(order), sort_keys=True)
    return replace(order, order_id=hashlib.sha256(text.encode()).hexdigest()[:32])
