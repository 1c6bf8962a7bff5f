"""The fleet of `ports` over gRPC."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Final

from tenure.registry.v1 import registry_pb2 as gpb
from tenure.registry.v1.registry_pb2_grpc import RegistryServiceStub
from tenure_runtime.rpc.client import Client
from tenure_scheduler.convert import agents as convert
from tenure_scheduler.entries import (
    AgentChange,
    AgentEntry,
    Dispatch,
    DispatchVerdict,
    ReportChange,
)
from tenure_scheduler.ports import Claim

PAGE: Final = 1_000
COMMANDS_MAX: Final = 1_000


class RegistryClient:
    """The fleet of `ports` over gRPC."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._stub = RegistryServiceStub(client.channel)

    async def fence(self, claim: Claim) -> None:
        """Have every older epoch refused."""
        request = gpb.FenceEpochRequest(scope=claim.scope, epoch=claim.epoch)
        await self._client.call(self._stub.FenceEpoch, request)

    async def agents(self, pool: str) -> tuple[list[AgentEntry], str]:
        """Return the pool's agents, and the token of the first page."""
        request = gpb.ListAgentsRequest(page_size=PAGE, pool=pool)
        found: list[AgentEntry] = []
        token = ""
        while True:
            page = await self._client.call(self._stub.ListAgents, request)
            found.extend(convert.to_agent(agent) for agent in page.agents)
            token = token or page.resume_token
            if not page.next_page_token:
                return found, token
            request.page_token = page.next_page_token

    async def watch_agents(self, pool: str, token: str) -> AsyncGenerator[AgentChange, None]:
        """Yield the pool's agent changes after the token."""
        request = gpb.WatchAgentsRequest(pool=pool, resume_token=token)
        async with self._client.stream(self._stub.WatchAgents, request) as changes:
            async for change in changes:
                agent = convert.to_agent(change.agent) if change.HasField("agent") else None
                yield AgentChange(change.resume_token, agent)

    async def reports(self, pool: str) -> tuple[list[ReportChange], str]:
        """Return the last report of each allocation, and the token of the first page."""
        request = gpb.ListReportsRequest(page_size=PAGE, pool=pool)
        found: list[ReportChange] = []
        token = ""
        while True:
            page = await self._client.call(self._stub.ListReports, request)
            found.extend(ReportChange("", convert.to_report(report)) for report in page.reports)
            token = token or page.resume_token
            if not page.next_page_token:
                return found, token
            request.page_token = page.next_page_token

    async def watch_reports(self, pool: str, token: str) -> AsyncGenerator[ReportChange, None]:
        """Yield the pool's reports after the token."""
        request = gpb.WatchReportsRequest(pool=pool, resume_token=token)
        async with self._client.stream(self._stub.WatchReports, request) as changes:
            async for change in changes:
                report = convert.to_report(change.report) if change.HasField("report") else None
                yield ReportChange(change.resume_token, report)

    async def dispatch(self, claim: Claim, commands: Sequence[Dispatch]) -> list[DispatchVerdict]:
        """Store commands for delivery, 1,000 a call."""
        verdicts: list[DispatchVerdict] = []
        for start in range(0, len(commands), COMMANDS_MAX):
            request = gpb.DispatchCommandsRequest(
                scope=claim.scope,
                epoch=claim.epoch,
                commands=map(convert.from_dispatch, commands[start : start + COMMANDS_MAX]),
            )
            response = await self._client.call(self._stub.DispatchCommands, request)
            verdicts.extend(
                DispatchVerdict(verdict.command_id, verdict.reason, verdict.message)
                for verdict in response.verdicts
            )
        return verdicts
