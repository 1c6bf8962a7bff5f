"""Settings, logs, loops, clocks and ids; and a process that starts and stops by signals."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from pydantic import Field

from tenure_runtime.clocks import BootClock, SystemClock
from tenure_runtime.ids import RandomIds
from tenure_runtime.process import run_loop
from tenure_runtime.settings import ServiceSettings, SettingsRefused
from tenure_runtime.telemetry.logging import configure_logging, get_logger


class EchoSettings(ServiceSettings):
    database_dsn: str
    pages_max: int = Field(100, ge=1, le=1_000)


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("TENURE_", "OTEL_")):
            monkeypatch.delenv(name)


def test_the_environment_wins_over_secrets_and_those_over_the_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "tenure.toml").write_text(
        'database_dsn = "file"\npages_max = 7\nlog_level = "debug"\n'
    )
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    (secrets / "tenure_database_dsn").write_text("secret\n")
    (secrets / "tenure_api_key").write_text("key\n")
    monkeypatch.setenv("TENURE_SETTINGS_FILE", str(tmp_path / "tenure.toml"))
    monkeypatch.setenv("TENURE_SECRETS_DIR", str(secrets))
    monkeypatch.setenv("TENURE_API_KEY", "environment")
    settings = EchoSettings.load()
    assert (settings.database_dsn, settings.api_key) == ("secret", "environment")
    assert (settings.pages_max, settings.log_level) == (7, "debug")
    assert EchoSettings.load(pages_max=9).pages_max == 9


def test_unknown_keys_in_the_file_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "tenure.toml").write_text('database_dsn = "x"\npages_maximum = 7\n')
    monkeypatch.setenv("TENURE_SETTINGS_FILE", str(tmp_path / "tenure.toml"))
    with pytest.raises(SettingsRefused, match="pages_maximum"):
        EchoSettings.load()


def test_a_file_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENURE_SETTINGS_FILE", "/nowhere.toml")
    with pytest.raises(SettingsRefused, match=r"/nowhere\.toml"):
        EchoSettings.load(database_dsn="x")


def test_misspelt_variables_are_refused_and_those_of_others_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TENURE_CASES", "/somewhere")
    monkeypatch.setenv("TENURE_ADMISSION_SERVICE_HOST", "10.0.0.1")
    assert EchoSettings.load(database_dsn="x").pages_max == 100
    monkeypatch.setenv("TENURE_PAGE_MAX", "7")
    with pytest.raises(SettingsRefused, match=r"TENURE_PAGE_MAX .* mean TENURE_PAGES_MAX"):
        EchoSettings.load(database_dsn="x")


def test_all_that_is_missing_or_out_of_range_is_said_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TENURE_PAGES_MAX", "5000")
    with pytest.raises(SettingsRefused) as caught:
        EchoSettings.load()
    assert str(caught.value).splitlines() == [
        "database_dsn (TENURE_DATABASE_DSN): Field required",
        "pages_max (TENURE_PAGES_MAX): Input should be less than or equal to 1000",
    ]


def test_a_wrong_setting_ends_the_process_with_a_sentence_and_not_its_value(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TENURE_PAGES_MAX", "p4ss")
    with pytest.raises(SystemExit) as caught:
        EchoSettings.load_or_exit(database_dsn="x")
    assert caught.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("pages_max (TENURE_PAGES_MAX): Input should be a valid integer")
    assert "p4ss" not in said


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    handlers, level = logging.root.handlers[:], logging.root.level
    configure_logging("echo", stream=stream)
    yield stream
    structlog.reset_defaults()
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)


def test_a_log_line_is_one_json_object_with_what_was_bound(lines: io.StringIO) -> None:
    get_logger(pool="main").info("lease.admitted", lease="x", count=2)
    line = json.loads(lines.getvalue())
    assert {k: line[k] for k in ("event", "level", "service", "pool", "lease", "count")} == {
        "event": "lease.admitted",
        "level": "info",
        "service": "echo",
        "pool": "main",
        "lease": "x",
        "count": 2,
    }
    assert line["timestamp"].endswith("Z")


def test_secrets_never_reach_the_log(lines: io.StringIO) -> None:
    key = "tnr_ann_" + "a1" * 32
    get_logger().info(
        "thing.done",
        api_key=key,
        password="p4ss",
        dsn="postgresql://u:p4ss@h/d",
        error=f"cannot reach postgresql://tenure:p4ss@db/x with {key}",
        tokens=["p4ss"],
        page_tokens_used=3,
    )
    logging.getLogger("library").error("failed with %s", key)
    text = lines.getvalue()
    assert "p4ss" not in text
    assert "a1a1" not in text
    assert "tnr_ann_[hidden]" in text
    assert json.loads(text.splitlines()[0])["page_tokens_used"] == 3


def test_exceptions_are_logged_with_their_trace_and_without_secrets(lines: io.StringIO) -> None:
    try:
        raise ValueError("no way to postgresql://tenure:p4ss@db/x")
    except ValueError as error:
        get_logger().error("thing.failed", exc_info=error)
    line = json.loads(lines.getvalue())
    assert "ValueError: no way to postgresql://tenure:[hidden]@db/x" in line["exception"]


async def test_a_loop_outlives_errors_backs_off_and_recovers() -> None:
    outcomes = iter([True, False, False, False, True, True])
    waits: list[float] = []

    async def run_once() -> None:
        if not next(outcomes):
            raise ValueError("no")

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 6:
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await run_loop(
            "echo.tick",
            run_once,
            period_s=1.0,
            jitter=0.0,
            longest_wait_s=5.0,
            rng=random.Random(1),
            sleep=sleep,
        )
    assert waits == [1.0, 2.0, 4.0, 5.0, 1.0, 1.0]


async def test_a_loop_runs_at_once_when_woken() -> None:
    runs = 0
    wake = asyncio.Event()
    twice = asyncio.Event()

    async def run_once() -> None:
        nonlocal runs
        runs += 1
        if runs == 2:
            twice.set()

    task = asyncio.ensure_future(run_loop("echo.tick", run_once, period_s=3_600, wake=wake))
    while runs == 0:
        await asyncio.sleep(0)
    wake.set()
    async with asyncio.timeout(5):
        await twice.wait()
    task.cancel()


def test_clocks_tell_milliseconds() -> None:
    before = time.time_ns() // 1_000_000
    assert before <= SystemClock().now_ms() <= before + 5_000
    boot = BootClock()
    first = boot.now_ms()
    assert first <= boot.now_ms() <= first + 5_000
    uptime_ms = float(Path("/proc/uptime").read_text().split()[0]) * 1_000
    assert abs(boot.now_ms() - uptime_ms) < 5_000


def test_ids_have_their_form_and_repeat_with_a_seed() -> None:
    ids = RandomIds()
    lease_ids = {ids.lease_id() for _ in range(1_000)}
    assert len(lease_ids) == 1_000
    assert all(len(i) == 12 and i.isalnum() and i == i.lower() for i in lease_ids)
    assert ids.request_id()[14] == "4"
    assert RandomIds(random.Random(5)).lease_id() == RandomIds(random.Random(5)).lease_id()


PROGRAM = """
import asyncio, sys
from contextlib import asynccontextmanager
from pathlib import Path
from tenure_runtime.process import announce, run_service
from tenure_runtime.settings import ServiceSettings
settings = ServiceSettings.load()

@asynccontextmanager
async def app():
    async with asyncio.TaskGroup() as group:
        task = group.create_task(MODE())
        announce(settings.ready_file, port=4)
        try:
            yield
        finally:
            task.cancel()
    print("released", flush=True)

async def forever():
    await asyncio.Event().wait()

async def fails():
    raise ValueError("a loop ended for good")

sys.exit(run_service("echo", settings, app))
"""


def start(tmp_path: Path, mode: str, *flags: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "TENURE_READY_FILE": str(tmp_path / "ready")}
    return subprocess.Popen(
        [sys.executable, *flags, "-c", PROGRAM.replace("MODE", mode)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_a_service_in_order(tmp_path: Path, number: signal.Signals) -> None:
    process = start(tmp_path, "forever")
    ready = tmp_path / "ready"
    while not ready.exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    assert json.loads(ready.read_text()) == {"pid": process.pid, "port": 4}
    process.send_signal(number)
    out, log = process.communicate(timeout=20)
    assert (process.returncode, out) == (0, "released\n")
    events = [json.loads(line)["event"] for line in log.splitlines()]
    assert events == ["process.started", "process.stopping", "process.stopped"]


def test_a_loop_that_ends_for_good_ends_the_process(tmp_path: Path) -> None:
    process = start(tmp_path, "fails")
    _, log = process.communicate(timeout=20)
    assert process.returncode == 1
    assert "a loop ended for good" in log


def test_a_process_without_assertions_refuses_to_start(tmp_path: Path) -> None:
    process = start(tmp_path, "forever", "-O")
    _, log = process.communicate(timeout=20)
    assert process.returncode == 1
    assert "does not run with -O" in log
