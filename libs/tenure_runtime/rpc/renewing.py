"""A channel that is made anew when its certificate is renewed.

gRPC's Python channels keep the credentials that they were made with. So this one looks at the
files when a call is made, once a second at most: when they changed, new calls go over a new
channel, and the old one is closed when the last of its calls has ended.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final

import grpc

from tenure_runtime.rpc.tls import TlsContents, TlsReader
from tenure_runtime.rpc.transport import TlsFiles

LOOK_S: Final = 1.0
_LAST_CALLS_S: Final = 30 * 86_400.0
"""How long the calls of a channel may outlast it; watches and agents' streams last for days."""


class RenewingChannel(grpc.aio.Channel):
    """Looks like one channel for ever. `make` opens one with what the files hold.

    Raises TlsFilesRefused when there is nothing to begin with.
    """

    def __init__(self, files: TlsFiles, make: Callable[[TlsContents], grpc.aio.Channel]) -> None:
        self._reader = TlsReader(files)
        self._make = make
        self._channel = make(self._reader.read())
        self._look_at = time.monotonic() + LOOK_S
        self._retired: dict[grpc.aio.Channel, asyncio.Task[None]] = {}

    def current(self) -> grpc.aio.Channel:
        """Return the channel for a call that begins now."""
        now = time.monotonic()
        if now >= self._look_at:
            self._look_at = now + LOOK_S
            contents = self._reader.changed()
            if contents is not None:
                self._retire(self._channel)
                self._channel = self._make(contents)
        return self._channel

    def _retire(self, channel: grpc.aio.Channel) -> None:
        task = asyncio.get_running_loop().create_task(channel.close(_LAST_CALLS_S))
        self._retired[channel] = task
        task.add_done_callback(lambda _: self._retired.pop(channel, None))

    async def close(self, grace: float | None = None) -> None:
        """Close all that was opened; calls under way get `grace` seconds."""
        retired = dict(self._retired)
        for task in retired.values():
            task.cancel()
        await asyncio.gather(*retired.values(), return_exceptions=True)
        for channel in (*retired, self._channel):
            await channel.close(grace)

    async def __aenter__(self) -> RenewingChannel:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        """Return the state of the channel in use."""
        return self._channel.get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        """Wait until the channel in use is in another state."""
        await self._channel.wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        """Wait until the channel in use is connected."""
        await self._channel.channel_ready()

    # The arguments are grpc's own, which generated stubs give by name.

    def unary_unary(self, method: str, *given: Any, **named: Any) -> Any:
        """Return a call of one request and one response."""
        return _Renewed(self, method, lambda to: to.unary_unary(method, *given, **named))

    def unary_stream(self, method: str, *given: Any, **named: Any) -> Any:
        """Return a call of one request and many responses."""
        return _Renewed(self, method, lambda to: to.unary_stream(method, *given, **named))

    def stream_unary(self, method: str, *given: Any, **named: Any) -> Any:
        """Return a call of many requests and one response."""
        return _Renewed(self, method, lambda to: to.stream_unary(method, *given, **named))

    def stream_stream(self, method: str, *given: Any, **named: Any) -> Any:
        """Return a call of many requests and many responses."""
        return _Renewed(self, method, lambda to: to.stream_stream(method, *given, **named))


class _Renewed:
    """One method of a stub, over whichever channel is the present one."""

    def __init__(
        self, owner: RenewingChannel, method: str, bind: Callable[[grpc.aio.Channel], Any]
    ) -> None:
        self._method = method.encode()  # where `client` finds the name for its span
        self._owner = owner
        self._bind = bind
        self._channel: grpc.aio.Channel | None = None
        self._bound: Any = None

    def __call__(self, *given: Any, **named: Any) -> Any:
        channel = self._owner.current()
        if channel is not self._channel:
            self._channel, self._bound = channel, self._bind(channel)
        return self._bound(*given, **named)
