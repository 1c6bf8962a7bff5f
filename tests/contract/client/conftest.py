"""One suite for all contract tests of the SDK: it takes seconds to start, and they do not mind."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future

import pytest
from tests.support.suite import RunningSuite, running_suite

from tenure.client import Plane, connect


@pytest.fixture(scope="package")
def suite() -> Iterator[RunningSuite]:
    """Run a suite in the main thread's stead: its own loop lives as long as the package's tests."""
    started: Future[RunningSuite] = Future()
    over: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def run() -> None:
        end = asyncio.Event()
        over.set_result((asyncio.get_running_loop(), end))
        async with running_suite(agents=2) as running:
            started.set_result(running)
            await end.wait()

    def serve() -> None:
        try:
            asyncio.run(run())
        except BaseException as error:
            if started.done():
                raise
            started.set_exception(error)

    thread = threading.Thread(target=serve, name="suite")
    thread.start()
    loop, end = over.result(10)
    try:
        yield started.result(90)
    finally:
        loop.call_soon_threadsafe(end.set)
        thread.join(60)


@pytest.fixture
def plane(suite: RunningSuite) -> Iterator[Plane]:
    """Return the suite's services as the operator."""
    with connect(suite.folder) as plane:
        yield plane
