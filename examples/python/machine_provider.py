"""A provider of machines in a file: what to serve so that the autoscaler buys machines from you.

    python machine_provider.py 127.0.0.1:7100

then start the autoscaler with TENURE_EXTERNAL_PROVIDER_ADDRESS=127.0.0.1:7100 and make a group with
`--provider external`. The machines here are entries in a dictionary; put your own calls in their
place. Three things must stay as they are: owner and token are on a machine from the moment it is
there, a token makes one machine in its life, and all machines are listed.
"""

import asyncio
import sys

import grpc
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from tenure.provider.v1 import provider_pb2 as ppb
from tenure.provider.v1 import provider_pb2_grpc

MACHINES_MAX = 20


class Machines(provider_pb2_grpc.MachineProviderServiceServicer):
    """Machines that are entries in a dictionary."""

    def __init__(self):
        self.machines = {}
        self.ended = set()
        self.made = 0

    async def CreateMachine(self, request, context):
        """Make a machine, once for its token."""
        spec = request.spec
        for machine in self.machines.values():
            if machine.token == spec.token:
                return ppb.CreateMachineResponse(provider_id=machine.provider_id)
        if not (spec.machine and spec.owner and spec.token) or spec.token in self.ended:
            await refuse(context, grpc.StatusCode.INVALID_ARGUMENT, "INVALID_PARAMETER")
        if len(self.machines) >= MACHINES_MAX:
            await refuse(context, grpc.StatusCode.RESOURCE_EXHAUSTED, "QUOTA_EXCEEDED")
        # Here you would start the machine, its agent under the name spec.machine.
        self.made += 1
        name = f"example-{self.made}"
        self.machines[name] = ppb.ProvidedMachine(
            provider_id=name, machine=spec.machine, owner=spec.owner, token=spec.token
        )
        return ppb.CreateMachineResponse(provider_id=name)

    async def ListMachines(self, request, context):
        """List all machines, page by page, and say what can be done."""
        names = sorted(name for name in self.machines if name > request.page_token)
        size = request.page_size or 100
        page, more = names[:size], names[size:]
        return ppb.ListMachinesResponse(
            machines=[self.machines[name] for name in page],
            next_page_token=page[-1] if more else "",
            capabilities=ppb.Capabilities(creates_once=True, launches_per_minute=60),
        )

    async def RemoveMachine(self, request, context):
        """End a machine."""
        # Here you would stop it. What is gone already is no error.
        gone = self.machines.pop(request.provider_id, None)
        if gone is not None:
            self.ended.add(gone.token)
        return ppb.RemoveMachineResponse()


async def refuse(context, code, word):
    """Refuse with a word that says why; docs/guides/providers.md lists those that are known."""
    detail = any_pb2.Any()
    detail.Pack(error_details_pb2.ErrorInfo(reason=word, domain="example.provider"))
    told = status_pb2.Status(code=code.value[0], message=word, details=[detail])
    context.set_trailing_metadata(rpc_status.to_status(told).trailing_metadata)
    await context.abort(code, word)


async def main():
    server = grpc.aio.server()
    provider_pb2_grpc.add_MachineProviderServiceServicer_to_server(Machines(), server)
    server.add_insecure_port(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:7100")
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(main())
