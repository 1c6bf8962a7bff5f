"""Who notices are sent to: a real HTTP server and a real SMTP server on the loopback address."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import Message
from email.policy import default
from typing import Any


@dataclass
class Posted:
    """One request as it came."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def told(self) -> dict[str, Any]:
        return dict(json.loads(self.body))

    def is_signed_with(self, secret: str) -> bool:
        """Check the signature as a receiver would."""
        at, _, digest = self.headers["tenure-signature"].partition(",v1=")
        text = at.removeprefix("t=").encode() + b"." + self.body
        return hmac.compare_digest(
            digest, hmac.new(secret.encode(), text, hashlib.sha256).hexdigest()
        )


@dataclass
class HttpReceiver:
    """Answers each POST with the next of `answers`, then with the last one again and again."""

    answers: list[bytes] = field(default_factory=lambda: [b"204 No Content"])
    posted: list[Posted] = field(default_factory=list)
    url: str = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = head.strip().split("\r\n")
        headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in lines)}
        body = await reader.readexactly(int(headers["content-length"]))
        self.posted.append(Posted(first.split()[1], headers, body))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        writer.write(b"HTTP/1.1 " + answer + b"\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        writer.close()


@asynccontextmanager
async def http_receiver(*answers: bytes) -> AsyncIterator[HttpReceiver]:
    """Serve HTTP for the length of a block."""
    receiver = HttpReceiver(list(answers)) if answers else HttpReceiver()
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0)
    receiver.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook?a=b"
    async with server:
        yield receiver


@dataclass
class SmtpReceiver:
    """Takes mails, but none for an address that begins with `refused`."""

    mails: list[tuple[str, Message]] = field(default_factory=list)
    address: str = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        recipient = ""

        async def say(text: str) -> None:
            writer.write(text.encode() + b"\r\n")
            await writer.drain()

        await say("220 receiver ESMTP")
        while line := (await reader.readline()).decode().strip():
            verb = line[:4].upper()
            if verb == "RCPT":
                recipient = line.partition("<")[2].partition(">")[0]
                refused = recipient.startswith("refused")
                await say("550 no such address" if refused else "250 ok")
            elif verb == "DATA":
                await say("354 go on")
                data = await reader.readuntil(b"\r\n.\r\n")
                self.mails.append((recipient, message_from_bytes(data[:-3], policy=default)))
                await say("250 taken")
            elif verb == "QUIT":
                await say("221 bye")
                break
            else:
                await say("250 ok")
        writer.close()


@asynccontextmanager
async def smtp_receiver() -> AsyncIterator[SmtpReceiver]:
    """Serve SMTP for the length of a block."""
    receiver = SmtpReceiver()
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0)
    receiver.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield receiver
