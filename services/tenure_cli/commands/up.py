"""`tenure up`: the whole suite on this machine, in the foreground or detached."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from tenure_cli.embedded.draining import count_running, drain, end_drain
from tenure_cli.embedded.layout import default_data_folder, read_state
from tenure_cli.embedded.readable import readable
from tenure_cli.embedded.suite import Suite, SuiteOptions
from tenure_cli.failures import ExitWith
from tenure_cli.output import output_option, print_json
from tenure_core.errors import DomainError, Unavailable
from tenure_runtime.embedded.log_stream import LogStream
from tenure_runtime.embedded.processes import lock_data_folder

DETACH_TIMEOUT_S = 120


def data_option(command: Any) -> Any:
    """Add `--data DIR`."""
    return click.option(
        "--data",
        type=click.Path(file_okay=False, path_type=Path),
        default=None,
        help="Where the suite keeps its things; default $TENURE_DATA or the user's data folder.",
    )(command)


@click.command()
@data_option
@click.option(
    "--agents", type=click.IntRange(0, 256), help="Local agents; default: as before, or 2."
)
@click.option(
    "--capacity",
    help="What each agent offers, e.g. cpu=4,memory=8Gi; default: as before. '' for what it finds.",
)
@click.option("--detach", is_flag=True, help="Return once everything serves.")
@click.option("--no-etcd", is_flag=True, help="Elect by a database row though etcd is here.")
@click.option("--postgres", default="", help="Folder of other server programs, or a server's DSN.")
@click.option("--otlp", default="", help="OTLP collector, http://host:4317.")
@click.option(
    "--keep/--drain", "keeps", default=None, help="What happens to running leases at the end."
)
@click.option("--no-metrics", is_flag=True, help="Serve no /metrics on the loopback address.")
@click.option("--new-ports", is_flag=True, help="Take free ports, not those of the last time.")
@click.option("--plaintext", is_flag=True, help="Without TLS, on the loopback address.")
@click.option("--quiet", is_flag=True, help="Show no log.")
@output_option
def up(
    data: Path | None,
    output: str,
    *,
    detach: bool,
    keeps: bool | None,
    quiet: bool,
    **given: Any,
) -> None:
    """Start the whole suite on this machine: PostgreSQL, elections, services, agents.

    Ctrl-C or `tenure down` stops it; its state is kept. With --drain, running leases end first;
    with --keep they go on for their fence time, and longer if the suite is up again by then.
    """
    folder = (data or default_data_folder()).absolute()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if detach:
        _detach(folder)
        _greet(folder, output)
        return
    options = SuiteOptions(
        folder,
        agents=given["agents"],
        agent_capacity=given["capacity"],
        etcd=not given["no_etcd"],
        postgres=given["postgres"],
        otlp_endpoint=given["otlp"],
        metrics=not given["no_metrics"],
        new_ports=given["new_ports"],
        plaintext=given["plaintext"],
        log_form="json",
    )
    stream = LogStream(None if quiet else sys.stdout, colour=sys.stdout.isatty(), render=readable)
    asyncio.run(_serve(options, stream, keeps))


def _detach(folder: Path) -> None:
    """Run the same command in the background and wait until it serves."""
    arguments = [argument for argument in sys.argv[1:] if argument != "--detach"]
    # Before anything is written: another `up` keeps its log there.
    lock_data_folder(folder).release()
    log = folder / "up.log"
    began = log.stat().st_size if log.exists() else 0
    ready = folder / "up.ready"
    ready.unlink(missing_ok=True)
    with log.open("ab") as output:
        process = subprocess.Popen(  # noqa: S603  # our own command line again
            [sys.executable, "-m", "tenure_cli", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env={**os.environ, "TENURE_UP_READY_FILE": str(ready)},
        )
    deadline = time.monotonic() + DETACH_TIMEOUT_S
    while not ready.exists():
        if process.poll() is not None:
            raise _not_started(log, began, process.returncode)
        if time.monotonic() > deadline:
            raise Unavailable("SUITE_NOT_STARTED", f"not ready in {DETACH_TIMEOUT_S} s; see {log}")
        time.sleep(0.05)  # a command line waits for its own child


def _not_started(log: Path, began: int, code: int) -> DomainError | ExitWith:
    """Return how to end when the suite did not start: with the sentence that it said itself."""
    with log.open("rb") as written:
        written.seek(began)
        said = written.read().decode(errors="replace").strip().splitlines()
    last = said[-1] if said else "it said nothing"
    if last.startswith("tenure: "):
        click.echo(last, err=True)
        return ExitWith(code)
    return Unavailable("SUITE_NOT_STARTED", f"the suite did not start: {last} (see {log})")


def _greet(folder: Path, output: str = "table") -> None:
    state = read_state(folder)
    if output == "json":
        print_json({"data": str(folder), **asdict(state)})
        return
    data = "" if folder == default_data_folder() else f"TENURE_DATA={folder} "
    click.echo(
        f"Tenure is up: {state.agents} agents, elections by {state.election}, state in {folder}.\n"
        f"Try: {data}tenure run -- hostname\nStop it with: {data}tenure down"
    )


async def _serve(options: SuiteOptions, stream: LogStream, keeps: bool | None) -> None:
    suite = Suite(options, stream)
    # A wish for the suite before this one, if that ended before it read it.
    (options.data / "down.wish").unlink(missing_ok=True)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    starting = asyncio.create_task(suite.start())
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        return
    starting.result()
    await end_drain(options.data)
    _greet(options.data)
    _tell_parent()
    await stop.wait()
    try:
        if await _should_drain(options.data, keeps):
            await drain(options.data)
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
        await suite.stop()
        click.echo("Tenure is down; its state is kept.")


def _tell_parent() -> None:
    """Let a `tenure up --detach` that waits for us return."""
    ready = os.environ.get("TENURE_UP_READY_FILE")
    if ready:
        Path(ready).touch()


async def _should_drain(folder: Path, keeps: bool | None) -> bool:
    """Return what was said: by option, by `tenure down`, or asked for once."""
    wish = folder / "down.wish"
    if wish.exists():
        said = wish.read_text(encoding="utf-8").strip()
        wish.unlink()
        return said == "drain"
    if keeps is not None:
        return not keeps
    running = await count_running(folder)
    if not running or not sys.stdin.isatty():
        return False
    question = f"{running} leases run. [d]rain (wait for them) or [k]eep them for their fence time?"
    answer = await asyncio.to_thread(
        click.prompt, question, type=click.Choice(["d", "k"]), default="k"
    )
    return bool(answer == "d")
