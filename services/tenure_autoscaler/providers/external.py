"""The provider `external`: a program of anybody's that serves `tenure.provider.v1`.

What it can do comes with each listing, so it is asked nothing beside listing, making and ending.
"""

from __future__ import annotations

from typing import Final

import grpc

from tenure.provider.v1 import provider_pb2 as ppb
from tenure.provider.v1.provider_pb2_grpc import MachineProviderServiceStub
from tenure_autoscaler.providers.port import (
    Capabilities,
    MachineSpec,
    ProvidedMachine,
    ProviderListing,
    ProviderRefusedError,
)
from tenure_autoscaler.settings import AutoscalerSettings
from tenure_core.autoscaling.provider_errors import ProviderErrorClass, error_class
from tenure_core.errors import DomainError, Exhausted, Forbidden, Invalid, NotFound, Unauthenticated
from tenure_runtime.rpc.client import Client, connect
from tenure_runtime.rpc.status import RemoteFailure
from tenure_runtime.rpc.transport import TlsFiles

PAGE: Final = 1_000
PAGES_MAX: Final = 1_000
"""A listing that does not end is no listing."""

CALL_S: Final = 30.0


class ExternalProvider:
    """Calls a provider at `target`."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._stub = MachineProviderServiceStub(client.channel)
        self._capabilities = Capabilities(creates_once=False, names=())

    @classmethod
    def of(cls, settings: AutoscalerSettings) -> ExternalProvider:
        """Return the provider that settings name. Raises ValueError when they name none."""
        target, key = settings.external_provider_address, settings.external_provider_key
        if target is None:
            raise ValueError("the provider `external` needs TENURE_EXTERNAL_PROVIDER_ADDRESS")
        authority, tls = settings.external_provider_authority, None
        if authority is not None:
            tls = TlsFiles(settings.tls_certificate, settings.tls_private_key, authority)
        return cls(connect(target, api_key=key, tls=tls))

    @property
    def capabilities(self) -> Capabilities:
        """See `Provider`: as the last listing told; before the first one no name can be had."""
        return self._capabilities

    async def create(self, spec: MachineSpec) -> str:
        """See `Provider`."""
        wanted = ppb.MachineSpec(
            machine=spec.machine, owner=spec.owner, token=spec.token, group=spec.group,
            pool=spec.pool, amounts=dict(spec.amounts.items()), epoch=spec.epoch,
        )  # fmt: skip
        request = ppb.CreateMachineRequest(spec=wanted)
        try:
            made = await self._client.call(
                self._stub.CreateMachine, request, timeout_s=CALL_S, retry=False
            )
        except DomainError as error:
            raise _refusal(error) from None
        if not made.provider_id:
            raise ProviderRefusedError("NO_PROVIDER_ID", "the provider told no id of what it made")
        return made.provider_id

    async def list_machines(self) -> ProviderListing:
        """See `Provider`."""
        machines: list[ProvidedMachine] = []
        complete, token = True, ""
        for number in range(PAGES_MAX):
            request = ppb.ListMachinesRequest(page_size=PAGE, page_token=token)
            try:
                page = await self._client.call(
                    self._stub.ListMachines, request, timeout_s=CALL_S, retry=False
                )
            except DomainError as error:
                raise _refusal(error) from None
            if number == 0:
                self._capabilities = _capabilities(page.capabilities)
            machines += [
                ProvidedMachine(each.provider_id, each.machine, each.owner, each.token)
                for each in page.machines
            ]
            complete = complete and not page.incomplete
            token = page.next_page_token
            if not token:
                return ProviderListing(tuple(machines), complete)
        return ProviderListing(tuple(machines), complete=False)

    async def suspend(self, provider_id: str) -> None:
        """See `Provider`: the contract has no such call, and the capabilities say so."""
        raise ProviderRefusedError("UNSUPPORTED", f"{provider_id} cannot be suspended")

    async def resume(self, provider_id: str) -> None:
        """See `Provider`: as for `suspend`."""
        raise ProviderRefusedError("UNSUPPORTED", f"{provider_id} cannot be resumed")

    async def remove(self, provider_id: str) -> None:
        """See `Provider`."""
        request = ppb.RemoveMachineRequest(provider_id=provider_id)
        try:
            await self._client.call(
                self._stub.RemoveMachine, request, timeout_s=CALL_S, retry=False
            )
        except NotFound:
            return
        except DomainError as error:
            raise _refusal(error) from None


def _capabilities(told: ppb.Capabilities) -> Capabilities:
    return Capabilities(
        creates_once=told.creates_once,
        names=tuple(told.machine_names) or None,
        launches_per_minute=told.launches_per_minute if told.launches_per_minute > 0 else 60,
    )


def _refusal(error: DomainError) -> ProviderRefusedError:
    """Return a refusal: the provider's own word where it has a class, else that of its status."""
    word = error.reason
    if error_class(word) is ProviderErrorClass.UNCLEAR:
        match error:
            case Exhausted():
                word = "QUOTA_EXCEEDED"
            case Unauthenticated() | Forbidden():
                word = "UNAUTHENTICATED"
            case Invalid() | NotFound():
                word = "BAD_REQUEST"
            case RemoteFailure(code=grpc.StatusCode.UNIMPLEMENTED):
                word = "UNSUPPORTED"
    return ProviderRefusedError(word, error.message)
