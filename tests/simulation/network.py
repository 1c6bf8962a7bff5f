"""A faulty network below the real gRPC clients and servicers, all in one process.

Decides what may happen to a message: it is delayed, lost, held back by a partition, delivered a
second time long after, or its answer is lost after it had its effect. Messages of one stream keep
their order, as on TCP; calls overtake one another. The generated stubs and `tenure_runtime`'s
client see an ordinary `grpc.aio` channel; servicers run behind the real edge (identity, roles,
error statuses).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import grpc
from tests.simulation.world import World
from tests.support.virtual_loop import outside

if TYPE_CHECKING:
    from tests.simulation.streams import Stream


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


def failure(status: Status) -> grpc.aio.AioRpcError:
    """Return the error that a client sees of a status."""
    code, details, trailing = status
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), trailing, details, None)


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
