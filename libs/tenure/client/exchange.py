"""Connects as the caller that `discovery` finds, with its key or with tokens in the key's place.

Keys of a keyring (`tnr_…`) are known to every service; keys made by calls (`tnk_…`) and tokens of
an OIDC issuer are known to admission only, which issues short-lived tokens for them.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

from tenure.admission.v1 import identity_pb2
from tenure.admission.v1.identity_pb2_grpc import IdentityServiceStub
from tenure.client.discovery import Discovery
from tenure_runtime.rpc.client import Client, connect
from tenure_runtime.rpc.token_source import IssuedToken, TokenSource
from tenure_runtime.rpc.wire import span_to_millis


class Doorway:
    """Opens clients of the services, all as one caller; they are closed with it."""

    def __init__(self, discovery: Discovery, **options: Any) -> None:
        self._discovery = discovery
        self._options = options
        self._clients: dict[str, Client] = {}
        self._tokens: TokenSource | None = None
        self._open = AsyncExitStack()

    def client(self, service: str) -> Client:
        """Return the client of a service."""
        if service not in self._clients:
            key = self._discovery.key()
            tokens = None if key.startswith("tnr_") else self._source()
            client = connect(
                self._discovery.address(service),
                api_key=None if tokens else key,
                tls=self._discovery.transport(service),
                tokens=tokens,
                **self._options,
            )
            self._clients[service] = client
            self._open.push_async_callback(client.close)
        return self._clients[service]

    async def close(self) -> None:
        """Close all connections; calls under way are cancelled."""
        if self._tokens is not None:
            self._tokens.close()
        await self._open.aclose()
        self._clients.clear()
        self._tokens = None

    def _source(self) -> TokenSource:
        """Return the tokens of the credential, which is read anew for each: it may be replaced."""
        if self._tokens is None:
            address, tls = (
                self._discovery.address("admission"),
                self._discovery.transport("admission"),
            )

            async def issue() -> IssuedToken:
                async with connect(address, api_key=self._discovery.key(), tls=tls) as client:
                    stub = IdentityServiceStub(client.channel)
                    answer = await client.call(stub.IssueToken, identity_pb2.IssueTokenRequest())
                return IssuedToken(answer.token, span_to_millis(answer.lifetime) / 1_000)

            self._tokens = TokenSource(issue)
        return self._tokens
