"""A faulty network below the real gRPC clients and servicers, all in one process.

Decides what may happen to a message: it is delayed, lost, held back by a partition, delivered a
second time long after, or its answer is lost after it had its effect. Messages of one stream keep
their order, as on TCP; calls overtake one another. The generated stubs and `tenure_runtime`'s
client see an ordinary `grpc.aio` channel; servicers run behind the real edge (identity, roles,
error statuses).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import Context
from typing import Any, Final

import grpc
from tests.simulation.world import Host, World
from tests.support.virtual_loop import PROCESS, Process, outside

from tenure_runtime.rpc import edge
from tenure_runtime.rpc.identity import Keyring, Permissions

EOF: Final[Any] = getattr(grpc.aio, "EOF")  # noqa: B009
OK: Final = grpc.StatusCode.OK
GONE: Final = grpc.StatusCode.UNAVAILABLE
Status = tuple[grpc.StatusCode, str, tuple[tuple[str, Any], ...]]
FINE: Final[Status] = (OK, "", ())

DELAY_S: Final = (0.0002, 0.003)
SLOW_S: Final = (0.05, 2.5)
LATE_S: Final = (0.01, 6.0)
"""When a request comes a second time."""
RESET_S: Final = (0.001, 0.3)
KEEPALIVE_S: Final = (4.0, 25.0)
"""After how long a partition ends a stream; both sides find out for themselves."""


def broken(why: str) -> Status:
    """Return how a call ends whose connection broke."""
    return (GONE, why, ())


class Network:
    """Who reaches whom, and what happens on the way."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._cut: dict[frozenset[str], int] = {}
        self._waiting: list[tuple[frozenset[str], Callable[[], None]]] = []
        self._streams: dict[Stream, None] = {}

    # Links.

    def cut(self, one: str, other: str) -> None:
        """Let nothing through between two hosts until `mend`."""
        link = frozenset((one, other))
        self._cut[link] = self._cut.get(link, 0) + 1
        if self._cut[link] == 1:
            for stream in list(self._streams):
                if stream.link == link:
                    stream.starve()

    def mend(self, one: str, other: str) -> None:
        """Undo one `cut`; what waited goes on its way."""
        link = frozenset((one, other))
        self._cut[link] -= 1
        if self._cut[link]:
            return
        del self._cut[link]
        through = [send for at, send in self._waiting if at == link]
        self._waiting = [(at, send) for at, send in self._waiting if at != link]
        for send in through:
            send()

    def is_cut(self, link: frozenset[str]) -> bool:
        """Say whether nothing gets through."""
        return link in self._cut

    def carry(
        self, link: frozenset[str], deliver: Callable[[], None], *, waits: bool = True
    ) -> None:
        """Deliver something after its delay; over a cut link when that is mended, or never."""
        if link in self._cut:
            if waits:
                self._waiting.append((link, lambda: self.carry(link, deliver)))
            return
        self.world.loop.call_later(self.delay_s(), self._arrive, deliver, context=outside())

    def hold(self, link: frozenset[str], act: Callable[[], None]) -> None:
        """Do something as soon as a cut link is mended, in the order of asking."""
        self._waiting.append((link, act))

    def _arrive(self, deliver: Callable[[], None]) -> None:
        self.world.step()
        deliver()

    def delay_s(self) -> float:
        """Return how long a message takes."""
        slow = self.world.chance("slow", self.world.rates.slow)
        return self.world.rng("delay").uniform(*(SLOW_S if slow else DELAY_S))

    def later(self, span: tuple[float, float], act: Callable[[], None]) -> None:
        """Do something after a while."""
        at_s = self.world.rng("later").uniform(*span)
        self.world.loop.call_later(at_s, act, context=outside())

    def opened(self, stream: Stream) -> None:
        """Note a stream that a cut may starve."""
        self._streams[stream] = None

    def closed(self, stream: Stream) -> None:
        """Forget a stream."""
        self._streams.pop(stream, None)


class Handlers:
    """Takes the methods that generated code registers, as a server does."""

    def __init__(self) -> None:
        self.methods: dict[str, Any] = {}

    def add_generic_rpc_handlers(self, _: object) -> None:
        """The registered ones say it all."""

    def add_registered_method_handlers(self, service: str, handlers: dict[str, Any]) -> None:
        """Take the methods of one service."""
        self.methods.update({f"/{service}/{name}": each for name, each in handlers.items()})


class Server:
    """One process that serves; it lives and dies with it."""

    def __init__(
        self,
        host: Host,
        process: Process,
        service: str,
        keyring: Keyring,
        permissions: Permissions,
        add: Callable[[Any], None],
    ) -> None:
        handlers = Handlers()
        add(handlers)
        bounds = edge.Edge(service, keyring, permissions, write_timeout_s=1e9)
        self.host = host
        self.process = process
        self.methods = {
            name: edge._wrap(bounds, name, handler) for name, handler in handlers.methods.items()
        }


class Directory:
    """Which servers answer under which name: one a replica."""

    def __init__(self) -> None:
        self.servers: dict[str, dict[str, Server]] = {}

    def register(self, service: str, server: Server) -> None:
        """Have a server found; it is gone when its process is."""
        found = self.servers.setdefault(service, {})
        found[server.host.name] = server

    def hosts(self, service: str) -> list[str]:
        """Return the hosts that serve something."""
        return list(self.servers.get(service, ()))


class Context_:
    """What a handler knows of its call (`grpc.aio.ServicerContext`)."""

    def __init__(self, metadata: Iterable[tuple[str, str]], stream: Stream | None = None) -> None:
        self._metadata = tuple(metadata)
        self._stream = stream
        self.status: Status = FINE

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return self._metadata

    def time_remaining(self) -> None:
        return None

    async def abort(
        self, code: grpc.StatusCode, details: str = "", trailing: tuple[Any, ...] = ()
    ) -> None:
        self.status = (code, details, trailing)
        raise grpc.aio.AbortError

    async def read(self) -> Any:
        assert self._stream is not None
        return await self._stream.up.take()

    async def write(self, message: Any) -> None:
        assert self._stream is not None
        stream = self._stream
        stream.server_process.check()
        stream.send_down(message)
        await asyncio.sleep(0)


class Channel:
    """A `grpc.aio` channel from one process to the replicas of a service."""

    def __init__(self, network: Network, directory: Directory, here: Host, service: str) -> None:
        self.network = network
        self.directory = directory
        self.here = here
        self.service = service

    def unary_unary(self, path: str, *coders: Any, **named: Any) -> UnaryMethod:
        return UnaryMethod(self, path, named, coders)

    def unary_stream(self, path: str, *coders: Any, **named: Any) -> StreamMethod:
        return StreamMethod(self, path, named, coders)

    stream_stream = unary_stream
    stream_unary = unary_stream

    async def close(self, _: float | None = None) -> None:
        """Nothing is held open here."""

    def pick(self) -> Server | None:
        """Return a replica to ask: any that is thought to run, None when there is none."""
        servers = self.directory.servers.get(self.service, {})
        alive = [each for each in servers.values() if each.process.alive]
        return self.network.world.rng("pick").choice(alive) if alive else None


class Method:
    """A method of a channel, with the coders of its messages."""

    def __init__(
        self, channel: Channel, path: str, named: dict[str, Any], coders: tuple[Any, ...]
    ) -> None:
        self.channel = channel
        self._method = path.encode()
        self.path = path
        self.encode = named.get("request_serializer") or coders[0]
        self.decode = named.get("response_deserializer") or coders[1]


def failure(status: Status) -> grpc.aio.AioRpcError:
    """Return the error that a client sees of a status."""
    code, details, trailing = status
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), trailing, details, None)


class UnaryMethod(Method):
    """A call with one request and one answer."""

    async def __call__(
        self, request: Any, *, timeout: float | None = None, metadata: Any = ()
    ) -> Any:
        process = PROCESS.get()
        if process is not None:
            process.check()
        call = UnaryCall(self, self.encode(request), tuple(metadata or ()))
        call.begin()
        try:
            async with asyncio.timeout(timeout):
                status, content = await call.reply
        except TimeoutError:
            raise failure((grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded", ())) from None
        finally:
            call.over()
        if status[0] is not OK:
            raise failure(status)
        return self.decode(content)


class UnaryCall:
    """One unary call under way."""

    def __init__(self, method: UnaryMethod, content: bytes, metadata: tuple[Any, ...]) -> None:
        self.method = method
        self.network = method.channel.network
        self.world = self.network.world
        self.content = content
        self.metadata = metadata
        self.reply: asyncio.Future[tuple[Status, bytes]] = self.world.loop.create_future()
        self.server: Server | None = None
        self.task: asyncio.Task[Any] | None = None

    @property
    def name(self) -> str:
        return self.method.path.rpartition("/")[2]

    def begin(self) -> None:
        """Send the request."""
        world, rates = self.world, self.world.rates
        self.server = self.method.channel.pick()
        if self.server is None:
            self._end_soon(broken("Connection refused"))
            return
        self.link = frozenset((self.method.channel.here.name, self.server.host.name))
        if world.chance("lose_request", rates.lose_request):
            world.say(f"lost       {self.name} on its way to {self.server.host.name}")
            # Either the connection breaks, or nothing is ever heard of it.
            if world.chance("hang", 0.6):
                self._end_soon(broken("Connection reset before the request"))
            return
        self.network.carry(self.link, self._arrived)
        if world.chance("repeat_request", rates.repeat_request):
            self.network.later(LATE_S, self._arrived_again)

    def _end_soon(self, status: Status) -> None:
        self.network.later(RESET_S, lambda: self._answer(status, b""))

    def _answer(self, status: Status, content: bytes) -> None:
        if not self.reply.done():
            self.reply.set_result((status, content))

    def _arrived(self) -> None:
        server = self.server
        assert server is not None
        if not server.process.alive:
            self._end_soon(broken("Connection refused"))
            return
        self.task = self._serve(server, self._send_answer)
        server.process.on_death.append(self._server_died)

    def _arrived_again(self) -> None:
        """The request comes a second time; nobody hears the answer."""
        server = self.method.channel.pick()
        link = (
            self.link
            if server is None
            else frozenset((self.method.channel.here.name, server.host.name))
        )
        if server is None or not server.process.alive or self.network.is_cut(link):
            return
        self.world.step()
        self.world.say(f"repeated   {self.name} at {server.host.name}")
        self._serve(server, lambda _status, _content: None)

    def _serve(self, server: Server, answer: Callable[[Status, bytes], None]) -> asyncio.Task[None]:
        handler = server.methods[self.method.path]

        async def serve() -> None:
            context = Context_(self.metadata)
            content, status = b"", FINE
            try:
                response = await handler.unary_unary(
                    handler.request_deserializer(self.content), context
                )
                content = handler.response_serializer(response)
            except grpc.aio.AbortError:
                status = context.status
            if server.process.alive:
                answer(status, content)

        loop = self.world.loop
        return loop.create_task(serve(), context=_served_by(server.process))

    def _send_answer(self, status: Status, content: bytes) -> None:
        world = self.world
        if world.chance("lose_answer", world.rates.lose_answer):
            world.say(f"lost       the answer to {self.name}")
            if world.chance("hang", 0.6):
                self._end_soon(broken("Connection reset before the answer"))
            return
        self.network.carry(self.link, lambda: self._answer(status, content))

    def _server_died(self) -> None:
        reset = broken("Connection reset by a dead peer")
        self.network.carry(self.link, lambda: self._answer(reset, b""))

    def over(self) -> None:
        """Note that the caller waits no more: often the server hears of that."""
        if self.server is not None and self._server_died in self.server.process.on_death:
            self.server.process.on_death.remove(self._server_died)
        if self.task is not None and not self.task.done() and self.world.chance("abandon", 0.5):
            self.network.carry(self.link, lambda: self.task and self.task.cancel(), waits=False)


def _served_by(process: Process) -> Context:
    """Return a context with nothing of the caller in it."""
    context = Context()
    context.run(PROCESS.set, process)
    return context


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
        self.task = loop.create_task(self._serve(request), context=_served_by(process))

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
