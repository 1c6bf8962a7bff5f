"""Requests of `tenure.registry.v1` to lists of what is wrong: everything, not the first."""

from __future__ import annotations

import re
from typing import Final

from google.protobuf.duration_pb2 import Duration

from tenure.registry.v1 import agent_pb2, application_pb2, registry_pb2
from tenure_core.errors import Invalid, Violation

COMMANDS_MAX: Final = 1_000
REPORTS_MAX: Final = 500
APPLICATIONS_MAX: Final = 1_000
ADDRESS_MAX: Final = 255
LOG_DATA_MAX: Final = 64 * 1024
_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_COMMAND_ID: Final = re.compile(r"[!-~]{1,200}")
_VALID_S_MAX: Final = 86_400
_INT32_MAX: Final = 2**31 - 1


class _Found:
    """What was found so far."""

    def __init__(self) -> None:
        self.violations: list[Violation] = []

    def add(self, field: str, reason: str, description: str) -> None:
        self.violations.append(Violation(field, reason, description))

    def name(self, field: str, value: str, collection: str) -> None:
        """Check a name `{collection}/{id}`."""
        head, _, tail = value.partition("/")
        if head != collection or not _ID.fullmatch(tail):
            self.add(field, "NAME_INVALID", f"must be {collection}/{{id}}, an id of 1 to 63")

    def text(self, field: str, value: str, longest: int, *, least: int = 1) -> None:
        """Check a text's length, and that it is printable."""
        if not least <= len(value) <= longest or not value.isprintable():
            self.add(field, "TEXT_INVALID", f"must be {least} to {longest} printable characters")

    def number(self, field: str, value: int, least: int, most: int = _INT32_MAX) -> None:
        """Check a number's range."""
        if not least <= value <= most:
            self.add(field, "OUT_OF_RANGE", f"must be {least} to {most}")

    def done(self) -> None:
        """Raise Invalid if anything is wrong."""
        if self.violations:
            raise Invalid(self.violations)


def agent_name(field: str, value: str) -> None:
    """Check the name of an agent."""
    found = _Found()
    found.name(field, value, "agents")
    found.done()


def pool_name(field: str, value: str) -> None:
    """Check the id of a pool; `pools/{id}` is taken too."""
    found = _Found()
    if not _ID.fullmatch(value.removeprefix("pools/")):
        found.add(field, "NAME_INVALID", "must be the id of a pool, 1 to 63 characters")
    found.done()


def hello(message: registry_pb2.Hello) -> None:
    """Check who is calling."""
    found = _Found()
    found.name("hello.agent", message.agent, "agents")
    found.text("hello.incarnation", message.incarnation, 64)
    found.text("hello.version", message.version, 64)
    found.number("hello.protocol_version", message.protocol_version, 1)
    if not _ID.fullmatch(message.pool.removeprefix("pools/")):
        found.add("hello.pool", "NAME_INVALID", "must be the id of a pool, 1 to 63 characters")
    if len(message.capacity) > 32:
        found.add("hello.capacity", "TOO_MANY", "at most 32 kinds")
    if len(message.attributes) > 64:
        found.add("hello.attributes", "TOO_MANY", "at most 64")
    for key, value in message.attributes.items():
        found.text(f"hello.attributes[{key[:63]}]", key, 63)
        found.text(f"hello.attributes[{key[:63]}]", value, 255, least=0)
    if len(message.suspended_keeps) > 32:
        found.add("hello.suspended_keeps", "TOO_MANY", "at most 32 kinds")
    if message.sealing_key and len(message.sealing_key) != 32:
        found.add("hello.sealing_key", "KEY_INVALID", "32 bytes, or none")
    if len(message.allocations) > 10_000:
        found.add("hello.allocations", "TOO_MANY", "at most 10,000")
    found.done()


def reports(batch: registry_pb2.ReportBatch) -> None:
    """Check a batch of reports."""
    found = _Found()
    if len(batch.reports) > REPORTS_MAX:
        found.add("report_batch.reports", "TOO_MANY", f"at most {REPORTS_MAX}")
    for index, report in enumerate(batch.reports[:REPORTS_MAX]):
        field = f"report_batch.reports[{index}]"
        found.text(f"{field}.report_id", report.report_id, 200)
        found.text(f"{field}.command_id", report.command_id, 200, least=0)
        found.name(f"{field}.lease", report.lease, "leases")
        found.number(f"{field}.attempt", report.attempt, 0)
        found.number(f"{field}.rank", report.rank, 0)
        found.number(f"{field}.sequence", report.sequence, 1, 2**63 - 1)
        known = agent_pb2.Report.KIND_PREPARED <= report.kind <= agent_pb2.Report.KIND_REFUSED
        if not known:
            found.add(f"{field}.kind", "KIND_INVALID", "must be a kind that agents send")
    found.done()


def dispatch(request: registry_pb2.DispatchCommandsRequest) -> None:
    """Check a leader's commands."""
    found = _Found()
    _scope(found, request.scope)
    found.number("epoch", request.epoch, 1, 2**63 - 1)
    if not 1 <= len(request.commands) <= COMMANDS_MAX:
        found.add("commands", "TOO_MANY", f"must be 1 to {COMMANDS_MAX}")
    for index, command in enumerate(request.commands[:COMMANDS_MAX]):
        _command(found, f"commands[{index}]", command)
    found.done()


def _command(found: _Found, field: str, command: agent_pb2.Command) -> None:
    if not _COMMAND_ID.fullmatch(command.command_id):
        found.add(f"{field}.command_id", "TEXT_INVALID", "must be 1 to 200 visible characters")
    found.name(f"{field}.agent", command.agent, "agents")
    found.name(f"{field}.lease", command.lease, "leases")
    found.number(f"{field}.attempt", command.attempt, 0)
    found.number(f"{field}.rank", command.rank, 0)
    if command.WhichOneof("kind") is None:
        found.add(f"{field}.kind", "REQUIRED", "must say what to do")
    found.text(f"{field}.start.owner", command.start.owner, 63, least=0)
    found.text(f"{field}.start.project", command.start.project, 63, least=0)
    if command.HasField("valid_duration") and not _within(command.valid_duration, _VALID_S_MAX):
        found.add(f"{field}.valid_duration", "OUT_OF_RANGE", "must be above 0 and at most 24 hours")


def _within(length: Duration, most_s: int) -> bool:
    return 0 < length.seconds * 1_000 + length.nanos // 1_000_000 <= most_s * 1_000


def fence(request: registry_pb2.FenceEpochRequest) -> None:
    """Check a scope and its epoch. Scopes of other kinds are stored too."""
    found = _Found()
    kind, _, tail = request.scope.partition("/")
    if kind not in ("pool", "group") or not _ID.fullmatch(tail):
        found.add("scope", "NAME_INVALID", "must be pool/{id} or group/{id}")
    found.number("epoch", request.epoch, 1, 2**63 - 1)
    found.done()


def applications(request: registry_pb2.BatchGetApplicationsRequest) -> None:
    """Check whose applications are asked for."""
    found = _Found()
    found.number("agents", len(request.agents), 1, APPLICATIONS_MAX)
    for index, agent in enumerate(request.agents):
        found.name(f"agents[{index}]", agent, "agents")
    found.done()


def application_orders(request: registry_pb2.OrderApplicationsRequest) -> None:
    """Check what applications shall be."""
    found = _Found()
    kind, _, tail = request.scope.partition("/")
    if kind != "group" or not _ID.fullmatch(tail):
        found.add("scope", "NAME_INVALID", "must be group/{id}")
    found.number("epoch", request.epoch, 1, 2**63 - 1)
    found.number("orders", len(request.orders), 1, APPLICATIONS_MAX)
    if len({order.agent for order in request.orders}) < len(request.orders):
        found.add("orders", "REPEATED", "must be one an agent")
    for index, order in enumerate(request.orders):
        field = f"orders[{index}]"
        found.name(f"{field}.agent", order.agent, "agents")
        found.text(f"{field}.incarnation", order.incarnation, 64)
        found.text(f"{field}.order_id", order.order_id, 200)
        if (order.scope, order.epoch) != (request.scope, request.epoch):
            found.add(f"{field}.epoch", "OUT_OF_RANGE", "must be that of the request, like scope")
        if order.kind not in (
            application_pb2.ApplicationOrder.KIND_START,
            application_pb2.ApplicationOrder.KIND_STOP,
        ):
            found.add(f"{field}.kind", "KIND_INVALID", "must be START or STOP")
    found.done()


def is_application(report: application_pb2.ApplicationReport) -> bool:
    """Say whether a report can be stored; what an application says ends nobody's stream."""
    numbers = (report.threads, report.in_flight, report.queue_length, report.master_epoch)
    return (
        report.state in application_pb2.ApplicationReport.State.values()
        and report.state != application_pb2.ApplicationReport.STATE_UNSPECIFIED
        and min(numbers) >= 0
        and 0 <= report.mean_work_duration.seconds <= _VALID_S_MAX
        and report.mean_work_duration.nanos >= 0
        and len(report.address) <= ADDRESS_MAX
    )


def _scope(found: _Found, scope: str) -> None:
    found.name("scope", scope, "pool")


def stream_logs(request: registry_pb2.StreamLogsRequest) -> None:
    """Check what log is asked for."""
    found = _Found()
    found.name("lease", request.lease, "leases")
    found.number("rank", request.rank, 0)
    found.number("attempt", request.attempt, 0)
    found.done()
