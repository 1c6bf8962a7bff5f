"""A lease is one trace, from the caller through all services to the agent, for a collector."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as tpb
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as tgrpc
from tests.support.suite import running_suite, until

from tenure.admission.v1 import admission_pb2 as apb
from tenure.admission.v1 import lease_pb2 as lpb
from tenure.type.v1 import work_pb2
from tenure_runtime.ids import RandomIds
from tenure_runtime.rpc.wire import to_duration
from tenure_runtime.telemetry.tracing import span

pytestmark = pytest.mark.timeout(120)

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
CALLER = "00f067aa0ba902b7"

STEPS = {
    ("tenure-admission", "tenure.admission.v1.AdmissionService/CreateLease"),
    ("tenure-admission", "admission.record_transition"),
    ("tenure-scheduler", "scheduler.book"),
    ("tenure-slottable", "slottable.commit_group"),
    ("tenure-registry", "registry.dispatch_command"),
    ("tenure-agent", "agent.start"),
    ("tenure-agent", "agent.run"),
}


@dataclass(frozen=True)
class Seen:
    """One span as the collector got it."""

    service: str
    name: str
    trace: str
    id: str
    parent: str
    facts: dict[str, str]


@dataclass
class Collector(tgrpc.TraceServiceServicer):
    """An OTLP collector that keeps what it gets."""

    spans: list[Seen] = field(default_factory=list)

    async def Export(
        self, request: tpb.ExportTraceServiceRequest, context: Any
    ) -> tpb.ExportTraceServiceResponse:
        for resource in request.resource_spans:
            names = {a.key: a.value.string_value for a in resource.resource.attributes}
            for scope in resource.scope_spans:
                self.spans += [
                    Seen(
                        names["service.name"],
                        each.name,
                        each.trace_id.hex(),
                        each.span_id.hex(),
                        each.parent_span_id.hex(),
                        {a.key: a.value.string_value for a in each.attributes},
                    )
                    for each in scope.spans
                ]
        return tpb.ExportTraceServiceResponse()

    def of_trace(self, trace: str) -> list[Seen]:
        """Return the spans of one trace."""
        return [each for each in self.spans if each.trace == trace]


@asynccontextmanager
async def collecting() -> AsyncIterator[tuple[Collector, str]]:
    server = grpc.aio.server()
    collector = Collector()
    tgrpc.add_TraceServiceServicer_to_server(collector, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield collector, f"http://127.0.0.1:{port}"
    finally:
        await server.stop(0)


async def test_one_lease_is_one_trace_through_all_services_and_the_agent() -> None:
    async with (
        collecting() as (collector, endpoint),
        running_suite(agents=1, otlp_endpoint=endpoint) as running,
        running.connect() as connection,
    ):
        client, stub = await connection.admission()
        wanted = lpb.Lease(
            terms=lpb.Terms(best_effort=lpb.BestEffortTerms()),
            node_count=1,
            amounts={"cpu": 1_000},
            duration=to_duration(20_000),
            work=work_pb2.Work(command=["/bin/true"]),
        )
        with span("test.caller", parent=f"00-{TRACE}-{CALLER}-01"):
            request = apb.CreateLeaseRequest(lease=wanted, request_id=RandomIds().request_id())
            lease = (await client.call(stub.CreateLease, request)).lease
        assert lease.trace_parent[3:35] == TRACE

        def complete() -> bool:
            return {(s.service, s.name) for s in collector.of_trace(TRACE)} >= STEPS

        try:
            await until(complete, 30.0, "every step of the lease arrives at the collector")
        finally:
            present = sorted({(s.service, s.name) for s in collector.of_trace(TRACE)})
            print(f"in the trace: {present}; missing: {STEPS - set(present)}")
    found = collector.of_trace(TRACE)
    ids = {each.id for each in found} | {CALLER}
    assert [each for each in found if each.parent not in ids] == [], "the trace has holes"
    states = {each.facts.get("state") for each in found if each.name.endswith("record_transition")}
    assert states >= {"SCHEDULED", "STARTING"} and states & {"DONE", "ACTIVE"}
