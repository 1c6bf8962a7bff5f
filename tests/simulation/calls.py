"""Calls with one request and one answer over the simulated network, and what every method has."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import grpc
from tests.simulation.network import FINE, LATE_S, OK, RESET_S, Status, broken, failure
from tests.simulation.servers import Context_, Server, served_by
from tests.support.virtual_loop import PROCESS

if TYPE_CHECKING:
    from tests.simulation.channel import Channel


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
        return loop.create_task(serve(), context=served_by(server.process))

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
