"""`tenure trace`: one lease's tree with nothing installed, across attempts and leaders."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.cli import Cli
from tests.support.suite import RunningSuite, running_suite, until

from tenure_cli.embedded.layout import TRACES
from tenure_runtime.telemetry.span_store import StoreSink
from tenure_runtime.telemetry.spans import Recording, new_span_id

pytestmark = [pytest.mark.faults, pytest.mark.timeout(150)]

TRACE, CALLER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
WORK = """
echo "$TRACEPARENT"
[ "$TENURE_ATTEMPT" -ge 2 ] && exit 0
while [ ! -e "$GATE" ]; do sleep 0.05; done
exit 7
"""


def names(spans: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return service and name of each span of a tree, from top to bottom."""
    return [
        pair
        for each in spans
        for pair in [(each["service"], each["name"]), *names(each["children"])]
    ]


def facts(spans: list[dict[str, Any]], name: str, fact: str) -> list[Any]:
    """Return a fact of the spans of one name, by their beginning."""
    found = []
    for each in spans:
        if each["name"] == name:
            found.append(each["attributes"].get(fact))
        found += facts(each["children"], name, fact)
    return found


def epochs(spans: list[dict[str, Any]]) -> set[int]:
    """Return the epochs of the cycles that a tree is linked to."""
    found = {link["attributes"]["epoch"] for each in spans for link in each["links"]}
    return found.union(*(epochs(each["children"]) for each in spans))


async def test_a_lease_is_one_tree_across_attempts_and_leaders() -> None:
    async with running_suite(agents=1) as running:
        submitter = Cli(running.folder, environment={"TRACEPARENT": f"00-{TRACE}-{CALLER}-01"})
        tenure = Cli(running.folder, environment={"TRACEPARENT": ""})
        gate = running.folder / "gate"
        options = ("--time", "30s", "--on-failure", "restart", "--attempts", "2")
        work = WORK.replace("$GATE", str(gate))
        lease = await asyncio.to_thread(submitter.create, *options, run=work)
        await asyncio.to_thread(tenure.wait, lease, "ACTIVE")
        before = running.kill("scheduler")
        await running.runs_again("scheduler", before)
        gate.touch()
        ended = await asyncio.to_thread(tenure.wait, lease)
        assert ended["state"] == "STATE_DONE"
        assert ended["trace_parent"][3:35] == TRACE

        async def complete() -> bool:
            said = await asyncio.to_thread(tenure.json, "trace", lease)
            tree = said["spans"]
            return (
                facts(tree, "agent.run", "process.exit.code") == [7, 0]
                and "DONE" in facts(tree, "admission.record_transition", "state")
                and len(epochs(tree)) >= 2
            )

        await until(complete, 15.0, "the store has the whole tree")
        await _shows(running, tenure, lease)


async def _shows(running: RunningSuite, tenure: Cli, lease: str) -> None:
    said = await asyncio.to_thread(tenure.json, "trace", lease)
    assert said["trace"] == TRACE
    tree = said["spans"]
    assert set(names(tree)) >= {
        ("admission", "tenure.admission.v1.AdmissionService/CreateLease"),
        ("admission", "admission.record_transition"),
        ("scheduler", "scheduler.book"),
        ("slottable", "slottable.commit_group"),
        ("registry", "registry.dispatch_command"),
        ("agent", "agent.start"),
        ("agent", "agent.run"),
    }
    assert facts(tree, "agent.run", "attempt") == [1, 2]
    printed = await asyncio.to_thread(tenure, "trace", lease)
    lines = printed.stdout.splitlines()
    assert lines[0].startswith(f"lease {lease}, trace {TRACE}, ")
    assert any("~ scheduler.cycle pool=default" in line for line in lines)
    output = await asyncio.to_thread(tenure, "lease", "logs", lease)
    assert {line[3:35] for line in output.stdout.split()} == {TRACE}

    evil = Recording("evil", "server", TRACE, new_span_id(), CALLER, ended_ns=4 * 10**18)
    evil.set_attribute("note", "\x1b]0;owned\x07\x1b[31m\nred")
    sink = StoreSink(running.folder / TRACES, "evil")
    sink(evil)
    sink.close()
    shown = (await asyncio.to_thread(tenure, "trace", lease)).stdout
    assert "owned" in shown and "\x1b" not in shown and "\x07" not in shown
    assert all(line.lstrip().startswith(("lease ", "+")) for line in shown.splitlines())

    elsewhere = str(running.folder / "agents")
    missing = await asyncio.to_thread(tenure, "trace", lease, "--data", elsewhere, code=3)
    assert "TRACE_NOT_FOUND" in missing.stderr and TRACE in missing.stderr
