"""Each alert is made to happen in a suite of real processes, and its rule evaluated on what that
suite measured; a run without trouble sets off none. docs/runbook.md says what to do.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import asyncpg
import psutil
import pytest
from tests.support.cli import Cli, short_folder, up
from tests.support.recording import Recording, promtool, samples
from tests.tidy import queries

from tenure_cli.embedded.layout import read_state

pytestmark = [pytest.mark.faults, pytest.mark.timeout(240)]

LEASE = ("run", "-q", "--time", "30s", "--")
RECORDS = "SELECT pg_advisory_xact_lock(709459, hashtext('pool/default'))"
"""What a record of a leader's takes shared: it waits as it would for a fence that hangs."""


class Plant:
    """A suite, its processes and its database."""

    def __init__(self, cli: Cli) -> None:
        self.cli, self.folder = cli, cli.data

    def process(self, name: str) -> psutil.Process:
        """Return a service, an agent, `postgres` or `etcd` as a process."""
        mark = {"postgres": "bin/postgres", "etcd": "etcd"}.get(name, f"tenure_{name}")
        children = psutil.Process(read_state(self.folder).pid).children(recursive=True)
        return next(each for each in children if mark in " ".join(each.cmdline()[:3]))

    @contextmanager
    def stopped(self, name: str) -> Iterator[None]:
        """Hold a process still for the length of a block."""
        process = self.process(name)
        process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            process.send_signal(signal.SIGCONT)

    @contextmanager
    def transaction(self, statement: str) -> Iterator[None]:
        """Keep a transaction open that ran a statement, for the length of a block."""
        begun, leave = threading.Event(), threading.Event()

        async def hold() -> None:
            connection = await asyncpg.connect(self.dsn())
            async with connection.transaction():
                await connection.execute(statement)
                begun.set()
                await asyncio.to_thread(leave.wait)
            await connection.close()

        thread = threading.Thread(target=asyncio.run, args=(hold(),))
        thread.start()
        try:
            assert begun.wait(20)
            yield
        finally:
            leave.set()
            thread.join()

    def execute(self, statement: str) -> None:
        """Run a statement in the suite's database."""

        async def once() -> None:
            connection = await asyncpg.connect(self.dsn())
            await connection.execute(statement)
            await connection.close()

        asyncio.run(once())

    def dsn(self) -> str:
        """Return the database's address, as the services were told."""
        return self.process("admission").environ()["TENURE_DATABASE_DSN"]

    def quiet(self) -> Recording:
        """Return a recording that begins with minutes of nothing."""
        recording = Recording(self.folder)
        recording.take(minutes=11)
        return recording


@pytest.fixture(scope="module")
def plant() -> Iterator[Plant]:
    promtool()
    with short_folder("alerts") as folder:
        cli = Cli(folder / "data")
        with up(cli, "--agents", "1", "--capacity", "cpu=4,memory=1Gi"):
            yield Plant(cli)


def test_a_run_without_trouble_sets_off_nothing(plant: Plant) -> None:
    recording = Recording(plant.folder)
    for _ in range(4):
        plant.cli(*LEASE, "true")
        recording.take(minutes=4)
    assert recording.firing() == set()
    recording.keep("without_trouble")


def test_a_service_that_does_not_answer(plant: Plant) -> None:
    recording = Recording(plant.folder)
    with plant.stopped("autoscaler"):
        recording.take(minutes=3)
    assert recording.firing() == {"TenureServiceDown"}


def test_a_pool_that_nobody_leads(plant: Plant) -> None:
    recording = Recording(plant.folder)
    with plant.stopped("etcd"):
        recording.until(
            lambda seen: samples(seen, "tenure_leader_epoch", pool="default") == [0],
            20,
            "the leader steps down",
        )
        recording.take(minutes=3)
        assert "TenurePoolWithoutLeader" in recording.firing()
        recording.keep("etcd_hangs")
    recording.until(
        lambda seen: samples(seen, "tenure_leader_epoch", pool="default") > [0], 30, "a new leader"
    )


def test_a_leader_whose_records_hang(plant: Plant) -> None:
    recording = plant.quiet()
    with plant.transaction(RECORDS):
        first = plant.cli.create("--time", "30s")
        time.sleep(0.5)
        second = plant.cli.create("--time", "30s")
        recording.until(
            lambda seen: max(samples(seen, "tenure_queue_age_seconds"), default=0) > 10,
            30,
            "the second one is known and not planned",
        )
        recording.take(minutes=2)
        assert "TenureQueueNotPlanned" in recording.firing()
        [failed] = samples(recording.scrapes[0], "tenure_cycles_failed_total")
        recording.until(
            lambda seen: samples(seen, "tenure_cycles_failed_total") > [failed],
            30,
            "a record runs into its deadline",
        )
        recording.take()
        assert {"TenureCyclesFail", "TenureCyclesSlow"} <= recording.firing()
    for lease in (first, second):
        plant.cli.wait(lease)


def test_a_start_that_comes_late(plant: Plant) -> None:
    recording = plant.quiet()
    begun = time.monotonic()
    lease = plant.cli.create("--start", "+10s", "--time", "30s", run="true")
    plant.cli.wait(lease, "SCHEDULED")
    with plant.transaction(RECORDS):
        # From the start on, and for less than the deadline of what records it.
        time.sleep(begun + 17 - time.monotonic())
    plant.cli.wait(lease)
    recording.take(minutes=3)
    assert "TenureStartsLate" in recording.firing()


def test_a_transaction_that_somebody_forgot(plant: Plant) -> None:
    recording = Recording(plant.folder)
    with plant.transaction("SELECT pg_current_xact_id()"):
        plant.cli("maintenance", "create", "agent-1", "--start", "+9h", "--time", "1h", "--yes")
        recording.until(
            lambda seen: max(samples(seen, "tenure_feed_held_back_seconds")) > 5, 20, "it is seen"
        )
        recording.take(minutes=4)
        assert {"TenureFeedHeldBack", "TenureMirrorBehind"} <= recording.firing()
    recording.until(
        lambda seen: max(samples(seen, "tenure_feed_held_back_seconds")) == 0, 20, "it goes on"
    )


def test_an_agent_that_answers_late(plant: Plant) -> None:
    recording = plant.quiet()
    with plant.stopped("agent"):
        lease = plant.cli.create("--time", "30s", run="true")
        time.sleep(3)
    plant.cli.wait(lease)
    recording.take(minutes=3)
    assert "TenureCommandsSlow" in recording.firing()


def test_a_call_that_meets_a_bug(plant: Plant) -> None:
    recording = Recording(plant.folder)
    plant.execute("ALTER TABLE admission.quotas RENAME TO gone")
    try:
        for _ in range(2):
            plant.cli("quota", "list", code=None)
            recording.take()
    finally:
        plant.execute("ALTER TABLE admission.gone RENAME TO quotas")
    assert recording.firing() == {"TenureCallsFail"}


def test_calls_that_wait_for_a_lock_and_take_all_connections(plant: Plant) -> None:
    recording = plant.quiet()
    with plant.transaction("LOCK TABLE admission.leases IN ACCESS EXCLUSIVE MODE"):
        waiting = [plant.cli.begin("lease", "list") for _ in range(10)]
        recording.until(
            lambda seen: max(samples(seen, "tenure_database_connections", state="used")) >= 8,
            20,
            "all connections of admission wait",
        )
        recording.take(minutes=4)
        assert "TenureDatabaseBusy" in recording.firing()
        time.sleep(2)  # the calls are to be slow on a quick machine too
    for each in waiting:
        each.communicate(timeout=60)
    recording.take(minutes=4)
    assert "TenureCallsSlow" in recording.firing()


def test_a_process_that_does_not_get_the_processor(plant: Plant) -> None:
    recording = plant.quiet()
    for _ in range(6):
        with plant.stopped("autoscaler"):
            time.sleep(0.8)
        time.sleep(0.05)
    recording.take(minutes=4)
    assert "TenureEventLoopLate" in recording.firing()


def test_a_database_that_goes_away(plant: Plant) -> None:
    recording = Recording(plant.folder)
    plant.cli("lease", "list")
    recording.take(minutes=5)
    for _ in range(4):
        plant.process("postgres").kill()
        plant.cli("lease", "list", code=None)
        recording.take()
    recording.take(minutes=2)
    assert {"TenureCallsUnavailable", "TenureLoopsFail"} <= recording.firing()
    plant.cli("lease", "list", code=None)


def test_a_limit_that_is_used_up(plant: Plant) -> None:
    recording = Recording(plant.folder)
    lease = plant.cli.create("--time", "60s", run="sleep 60")
    plant.cli.wait(lease, "ACTIVE")
    plant.cli("quota", "set", "owner/operator", "--cpu", "1")
    recording.until(
        lambda seen: samples(seen, "tenure_quota_limits", used="100%", dimension="owner") == [1],
        30,
        "the limit is counted",
    )
    recording.take(minutes=11)
    plant.cli("lease", "cancel", lease)
    plant.cli("quota", "delete", "owner-operator")
    assert "TenureQuotasFull" in recording.firing()


def test_a_ledger_that_somebody_wrote_to(plant: Plant) -> None:
    recording = Recording(plant.folder)
    plant.execute("INSERT INTO admission.usage VALUES ('owner', 'eve', 'cpu', 7)")
    try:
        plant.process("admission").terminate()
        recording.until(
            lambda seen: samples(seen, "tenure_ledger_drifted_accounts") == [1],
            40,
            "the audit at the next start finds it",
        )
        assert "TenureLedgerDrifted" in recording.firing()
    finally:
        plant.execute("DELETE FROM admission.usage WHERE name = 'eve'")


def test_a_machine_that_does_not_come_up(plant: Plant) -> None:
    recording = Recording(plant.folder)
    plant.cli(
        *("machine", "group", "create", "local", "--max", "1", "--min", "1"),
        *("--machine", "cpu=1,memory=64Mi", "--boot", "60s"),
    )
    file = plant.folder / "machines" / "local.machine-1.1" / "process.json"
    deadline = time.monotonic() + 40
    machine = 0
    while not machine:
        assert time.monotonic() < deadline
        time.sleep(0.01)
        with suppress(FileNotFoundError, ValueError):
            machine = json.loads(file.read_text()).get("pid") or 0
    os.kill(machine, signal.SIGSTOP)
    recording.until(
        lambda seen: samples(seen, "tenure_autoscaler_target", group="local") == [1], 40, "a target"
    )
    recording.take(minutes=17)
    os.kill(machine, signal.SIGCONT)
    assert "TenureFleetOffTarget" in recording.firing()


def test_an_agent_that_is_lost(plant: Plant) -> None:
    recording = Recording(plant.folder)
    with plant.stopped("agent"):
        recording.until(
            lambda seen: samples(seen, "tenure_pool_agents", state="LOST") == [1], 30, "it is lost"
        )
        recording.take(minutes=3)
        assert "TenureAgentsLost" in recording.firing()


def test_dashboards_and_alerts_ask_for_what_a_suite_shows(plant: Plant) -> None:
    recording = Recording(plant.folder)
    plant.cli("quota", "set", "owner/operator", "--cpu", "1")
    leases = [plant.cli.create("--time", "60s", run="sleep 60") for _ in range(3)]
    recording.until(
        lambda seen: bool(
            samples(seen, "tenure_queue_length")
            and samples(seen, "tenure_autoscaler_lateness_seconds_count")
        ),
        100,
        "a lease waits, and a machine serves",
    )
    seen = {
        (series.partition("{")[0], frozenset(re.findall(r'([a-z_]+)="', series)))
        for series in recording.take()
    }
    for lease in leases:
        plant.cli("lease", "cancel", lease)
    missing = {
        name
        for query in (*queries.alerts().values(), *queries.panels())
        for name, matchers in query.selectors()
        if not any(name == known and matchers.keys() <= labels for known, labels in seen)
    }
    # Nobody has misbehaved on a stream, and nobody has asked for notices.
    assert missing <= {"tenure_registry_refused_streams_total", "tenure_notices_total"}
