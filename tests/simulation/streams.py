"""Streams over the simulated network: messages in order, an end after them, and cuts."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

import grpc
from tests.simulation.calls import Method
from tests.simulation.network import EOF, FINE, KEEPALIVE_S, OK, RESET_S, Status, broken, failure
from tests.simulation.servers import Context_, Server, served_by
from tests.support.virtual_loop import PROCESS, Process, outside


class Pipe:
    """One direction of a stream: messages arrive in order, and an end after them."""

    def __init__(self) -> None:
        self.arrived: deque[Any] = deque()
        self.grown = asyncio.Event()
        self.ended: Status | None = None

    def put(self, message: Any) -> None:
        """Let a message arrive."""
        if self.ended is None:
            self.arrived.append(message)
            self.grown.set()

    def end(self, status: Status) -> None:
        """Let the end arrive; what arrived before may still be read."""
        if self.ended is None:
            self.ended = status
            self.grown.set()

    async def take(self) -> Any:
        """Return the next message, or EOF."""
        while not self.arrived:
            if self.ended is not None:
                return EOF
            self.grown.clear()
            await self.grown.wait()
        return self.arrived.popleft()


class Stream:
    """A stream under way; messages cross as bytes."""

    def __init__(self, method: StreamMethod, metadata: tuple[Any, ...]) -> None:
        self.method = method
        self.network = method.channel.network
        self.world = self.network.world
        self.metadata = metadata
        self.up, self.down = Pipe(), Pipe()
        self.server: Server | None = method.channel.pick()
        self.task: asyncio.Task[Any] | None = None
        there = self.server.host.name if self.server else "nowhere"
        self.link = frozenset((method.channel.here.name, there))
        self._up_at = self._down_at = 0.0
        self._requests: deque[bytes] = deque()
        self.client_over = False

    @property
    def name(self) -> str:
        return self.method.path.rpartition("/")[2]

    @property
    def server_process(self) -> Process:
        assert self.server is not None
        return self.server.process

    def begin(self, request: bytes | None) -> None:
        """Open it."""
        if self.server is None:
            self.network.later(RESET_S, lambda: self.down.end(broken("Connection refused")))
            return
        self.network.opened(self)
        if self.network.is_cut(self.link):
            self.starve()
        self._send("up", lambda: self._open(request))

    def _open(self, request: bytes | None) -> None:
        if self.client_over:
            return
        process = self.server_process
        if not process.alive:
            self._break_client(broken("Connection refused"))
            return
        process.on_death.append(self._server_died)
        loop = self.world.loop
        self.task = loop.create_task(self._serve(request), context=served_by(process))

    async def _serve(self, request: bytes | None) -> None:
        assert self.server is not None
        handler = self.server.methods[self.method.path]
        context = Context_(self.metadata, self)
        status = FINE
        try:
            if handler.request_streaming:
                await handler.stream_stream(None, context)
            else:
                await handler.unary_stream(handler.request_deserializer(request), context)
        except grpc.aio.AbortError:
            status = context.status
        if self.server_process.alive:
            self._send("down", lambda: self._client_ends(status))

    # Messages.

    def _send(self, way: str, deliver: Callable[[], None]) -> None:
        """Deliver after whatever was sent before on this way."""
        if self.network.is_cut(self.link):
            self.network.hold(self.link, lambda: self._send(way, deliver))
            return
        now = self.world.loop.time()
        before = self._up_at if way == "up" else self._down_at
        at = max(before + 1e-6, now + self.network.delay_s())
        if way == "up":
            self._up_at = at
        else:
            self._down_at = at
        self.world.loop.call_at(at, self._arrive, deliver, context=outside())

    def _arrive(self, deliver: Callable[[], None]) -> None:
        self.world.step()
        deliver()
        if self.world.chance("break_stream", self.world.rates.break_stream):
            self.sever("a fault")

    def send_up(self, message: Any) -> None:
        """Send a message of the client."""
        content = self.method.encode(message)

        def deliver() -> None:
            if self.server is not None and not self.client_over:
                handler = self.server.methods[self.method.path]
                self.up.put(handler.request_deserializer(content))

        self._send("up", deliver)

    def send_down(self, message: Any) -> None:
        """Send a message of the server."""
        assert self.server is not None
        content = self.server.methods[self.method.path].response_serializer(message)
        self._send("down", lambda: self.down.put(self.method.decode(content)))

    # Ends.

    def sever(self, why: str) -> None:
        """Break the connection: both sides find out at their own time."""
        if self.down.ended is None:
            self.world.say(f"severed    {self.name} {'-'.join(sorted(self.link))}: {why}")
        self._break_client(broken("Connection reset"))
        self.network.later(RESET_S, self._end_server)

    def starve(self) -> None:
        """A partition began: unless it ends in time, each side gives up."""

        def give_up(side: Callable[[], None]) -> Callable[[], None]:
            def look() -> None:
                if self.network.is_cut(self.link):
                    side()

            return look

        lost = broken("keepalive watchdog timeout")

        def client_gives_up() -> None:
            self._client_ends(lost)
            self.network.carry(self.link, self._end_server)

        def server_gives_up() -> None:
            self._end_server()
            self.network.carry(self.link, lambda: self._client_ends(lost))

        self.network.later(KEEPALIVE_S, give_up(client_gives_up))
        self.network.later(KEEPALIVE_S, give_up(server_gives_up))

    def _break_client(self, status: Status) -> None:
        self.network.later(RESET_S, lambda: self._client_ends(status))

    def _client_ends(self, status: Status) -> None:
        self.down.end(status)
        self.network.closed(self)
        self.method.told(self)

    def _server_died(self) -> None:
        reset = broken("Connection reset by a dead peer")
        self.network.carry(self.link, lambda: self._client_ends(reset))

    def _end_server(self) -> None:
        if self.task is not None and not self.task.done():
            self.task.cancel()
        if self.server is not None and self._server_died in self.server_process.on_death:
            self.server_process.on_death.remove(self._server_died)

    def client_cancels(self) -> None:
        """The client leaves; the server hears of it when that arrives."""
        if self.client_over:
            return
        self.client_over = True
        self.down.end((grpc.StatusCode.CANCELLED, "Locally cancelled", ()))
        self.network.closed(self)
        if self.server is not None:
            self.network.carry(self.link, self._end_server)

    def client_died(self) -> None:
        """The client's process is gone."""
        self.client_cancels()


class StreamMethod(Method):
    """A call with a stream of answers, or streams both ways."""

    def __call__(
        self, request: Any = None, *, timeout: float | None = None, metadata: Any = ()
    ) -> StreamCall:
        process = PROCESS.get()
        if process is not None:
            process.check()
        stream = Stream(self, tuple(metadata or ()))
        stream.begin(None if request is None else self.encode(request))
        call = StreamCall(stream)
        stream.call = call  # type: ignore[attr-defined]
        if process is not None:
            process.on_death.append(stream.client_died)
        return call

    @staticmethod
    def told(stream: Stream) -> None:
        """Tell those who wait for the end of a call."""
        stream.call.ended()  # type: ignore[attr-defined]


class StreamCall:
    """The client's end of a stream (`grpc.aio.StreamStreamCall`)."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._process = PROCESS.get()
        self._listeners: list[Callable[[Any], None]] = []

    def add_done_callback(self, listener: Callable[[Any], None]) -> None:
        self._listeners.append(listener)

    def ended(self) -> None:
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener(self)

    def cancel(self) -> bool:
        self._stream.client_cancels()
        self.ended()
        if self._process is not None and self._stream.client_died in self._process.on_death:
            self._process.on_death.remove(self._stream.client_died)
        return True

    async def read(self) -> Any:
        message = await self._stream.down.take()
        if message is EOF and self._status[0] is not OK:
            raise failure(self._status)
        return message

    async def write(self, message: Any) -> None:
        if self._process is not None:
            self._process.check()
        if self._stream.down.ended is not None:
            raise asyncio.InvalidStateError("the call is over")
        self._stream.send_up(message)
        await asyncio.sleep(0)

    async def done_writing(self) -> None:
        self._stream._send("up", lambda: self._stream.up.end(FINE))

    @property
    def _status(self) -> Status:
        return self._stream.down.ended or FINE

    async def code(self) -> grpc.StatusCode:
        return self._status[0]

    async def details(self) -> str:
        return self._status[1]

    async def trailing_metadata(self) -> Any:
        return self._status[2]

    async def initial_metadata(self) -> Any:
        return grpc.aio.Metadata()
