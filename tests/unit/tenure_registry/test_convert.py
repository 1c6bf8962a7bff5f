"""What is taken out of messages, what travels untouched, and rows and payloads there and back."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.registry.v1 import agent_pb2, registry_pb2
from tenure.type.v1 import work_pb2
from tenure_core.agents.agent import Agent, Load
from tenure_core.agents.states import AgentState
from tenure_core.agents.work import (
    Allocation,
    AllocationState,
    Report,
    ReportKind,
    Slot,
    Verb,
)
from tenure_core.errors import Invalid
from tenure_core.leases.lease import OnLoss
from tenure_core.resources import AMOUNT_MAX, ResourceVector
from tenure_registry import convert, validation
from tenure_registry.store import rows
from tenure_registry.values import Outgoing

texts = st.text(max_size=20)
instants = st.integers(0, 2**45)
vectors = st.dictionaries(
    st.from_regex(r"[a-z]{1,8}", fullmatch=True), st.integers(0, AMOUNT_MAX), max_size=4
).map(ResourceVector)
slots = st.builds(Slot, texts, st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1))
agents = st.builds(
    Agent,
    texts, texts, texts, st.sampled_from(AgentState), st.booleans(), st.booleans(), vectors,
    st.dictionaries(texts, texts, max_size=3).map(lambda items: tuple(sorted(items.items()))),
    st.lists(texts, max_size=3).map(tuple), texts, texts, texts, instants, instants,
)  # fmt: skip
reports = st.builds(
    Report, texts, texts, texts, slots, st.sampled_from(ReportKind),
    st.integers(-(2**63), 2**63 - 1), st.binary(max_size=50),
)  # fmt: skip


@given(agents)
def test_an_agent_survives_the_feed(agent: Agent) -> None:
    assert rows.agent_of_payload(rows.agent_payload(agent)) == agent


@given(reports, instants)
def test_a_report_survives_the_feed_with_its_instant(report: Report, recorded_ms: int) -> None:
    assert rows.report_of_payload(rows.report_payload(report, recorded_ms)) == (report, recorded_ms)


def start_message(**fields: object) -> agent_pb2.Command:
    return agent_pb2.Command(
        command_id="c1",
        agent="agents/a1",
        lease="leases/l1",
        attempt=2,
        rank=3,
        trace_parent="00-1",
        start=agent_pb2.StartCommand(
            work=work_pb2.Work(command=["true"]), on_loss=work_pb2.ON_LOSS_KEEP
        ),
        **fields,  # type: ignore[arg-type]
    )


def test_a_command_keeps_its_content_and_says_what_decides() -> None:
    command = convert.command_of(start_message(), "pool/main", 7)
    assert (command.agent, command.slot, command.verb) == ("a1", Slot("l1", 2, 3), Verb.START)
    assert (command.on_loss, command.epoch, command.valid_ms) == (OnLoss.KEEP, 7, 60_000)
    sent = convert.command_response(Outgoing(command, 1_500, "s9"), "s9").command
    expected = start_message(scope="pool/main", epoch=7, session="s9")
    expected.valid_duration.FromMilliseconds(1_500)
    assert sent == expected


def test_a_repeat_by_a_new_leader_is_recognised_and_other_content_too() -> None:
    first = convert.command_of(start_message(), "pool/main", 1)
    again = start_message(session="x")
    again.trace_parent = "00-2"
    again.valid_duration.FromMilliseconds(5)
    assert convert.command_of(again, "pool/main", 2).digest == first.digest
    other = start_message()
    other.start.node_count = 2
    assert convert.command_of(other, "pool/main", 1).digest != first.digest


def test_a_report_is_of_the_agent_whose_stream_brought_it() -> None:
    message = agent_pb2.Report(
        report_id="r", agent="agents/liar", lease="leases/l1", attempt=1, rank=0,
        kind=agent_pb2.Report.KIND_ENDED, exit_code=0, sequence=4,
    )  # fmt: skip
    report = convert.report_of(message, "a1")
    assert (report.agent, report.kind, report.sequence) == ("a1", ReportKind.ENDED, 4)
    stored = convert.report_message(report)
    assert (stored.agent, stored.exit_code, stored.HasField("exit_code")) == ("agents/a1", 0, True)


def test_a_lost_report_says_what_and_why_and_comes_after_the_last() -> None:
    last = Report("r", "a1", "", Slot("l1", 1, 0), ReportKind.STARTED, 8, b"")
    allocation = Allocation(
        last.slot, "a1", "main", AllocationState.RUNNING, OnLoss.STOP, live=True, started=True,
        last=last,
    )  # fmt: skip
    report = convert.lost_report(allocation, "s1")
    message = convert.report_message(report)
    assert (report.report_id, report.sequence) == ("lost.s1.l1.1.0", 9)
    assert (message.kind, message.reason) == (agent_pb2.Report.KIND_LOST, "AGENT_LOST")
    assert (message.lease, message.agent, message.sequence) == ("leases/l1", "agents/a1", 9)


def test_an_agent_is_shown_with_what_it_runs() -> None:
    agent = Agent(
        "a1", "main", "d", AgentState.SUSPECT, True, False, ResourceVector({"cpu": 5}),
        (("zone", "x"),), ("memory",), "0.1", "s", "r1", 1_500, 2_000,
    )  # fmt: skip
    running = Allocation(
        Slot("l1", 1, 0),
        "a1",
        "main",
        AllocationState.RUNNING,
        OnLoss.STOP,
        live=True,
        started=True,
    )
    message = convert.agent_message(agent, (running,), Load(10, 20, 1))
    assert (message.name, message.node, message.state) == (
        "agents/a1", "nodes/a1", agent_pb2.Agent.STATE_SUSPECT,
    )  # fmt: skip
    assert (message.heartbeat_time.nanos, message.load.running_count) == (500_000_000, 1)
    assert [(a.lease, a.state) for a in message.allocations] == [
        ("leases/l1", agent_pb2.Allocation.STATE_RUNNING)
    ]
    assert convert.agent_message(replace(agent, session="")).HasField("load") is False


def test_every_limit_of_a_hello_is_kept() -> None:
    hello = registry_pb2.Hello(
        agent="agents/a1", incarnation="i" * 65, version="", protocol_version=0, pool="",
        capacity={f"k{i}": 1 for i in range(33)},
        attributes={f"a{i}": "x" * 256 for i in range(65)},
        suspended_keeps=["x"] * 33,
    )  # fmt: skip
    with pytest.raises(Invalid) as refused:
        validation.hello(hello)
    fields = [violation.field for violation in refused.value.violations]
    assert fields[:6] == [
        "hello.incarnation", "hello.version", "hello.protocol_version", "hello.pool",
        "hello.capacity", "hello.attributes",
    ]  # fmt: skip
    assert len(fields) == 6 + 65 + 1


def test_facts_are_plain_json() -> None:
    agent = Agent(
        "a", "p", "i", AgentState.ALIVE, False, False, ResourceVector({"cpu": 1}), (), (),
        "", "", "", 0, 0,
    )  # fmt: skip
    assert json.loads(rows.facts_of(agent)) == {
        "attributes": [],
        "capacity": {"cpu": 1},
        "keeps": [],
        "sealing_key": "",
    }
