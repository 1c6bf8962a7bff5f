"""The calls about quotas and usage: unpack, validate, one use case, pack."""

from __future__ import annotations

from typing import Any

from tenure.admission.v1 import admission_pb2 as calls
from tenure_admission import convert_quotas, quota_validation, validation
from tenure_admission.intake import request_key
from tenure_admission.usecases.limiting import Limiting
from tenure_runtime.rpc import paging
from tenure_runtime.rpc.caller import caller
from tenure_runtime.rpc.wire import bare

# grpc's context is typed by direction only; nothing here uses it.
Context = Any


class QuotaCalls:
    """The part of the servicer that is about quotas."""

    def __init__(self, limiting: Limiting) -> None:
        self._limiting = limiting

    async def SetQuota(
        self, request: calls.SetQuotaRequest, context: Context
    ) -> calls.SetQuotaResponse:
        """Set a quota."""
        validation.refuse(quota_validation.put(request))
        key = request_key(request, caller())
        wanted = convert_quotas.wanted_of(request.quota)
        quota, standing = await self._limiting.put(wanted, key)
        return calls.SetQuotaResponse(
            quota=convert_quotas.quota_to_wire(quota), usage=convert_quotas.usage_to_wire(standing)
        )

    async def DeleteQuota(
        self, request: calls.DeleteQuotaRequest, context: Context
    ) -> calls.DeleteQuotaResponse:
        """Forget a quota."""
        validation.refuse(quota_validation.delete(request))
        key = request_key(request, caller())
        quota = await self._limiting.delete(bare(request.name), request.etag, key)
        return calls.DeleteQuotaResponse(quota=convert_quotas.quota_to_wire(quota))

    async def ListQuotas(
        self, request: calls.ListQuotasRequest, context: Context
    ) -> calls.ListQuotasResponse:
        """Return a page of quotas."""
        validation.refuse(list(quota_validation.subject("", request)))
        size, token = paging.page_size(request.page_size, default=100), request.page_token
        request.ClearField("page_size")
        request.ClearField("page_token")
        arguments = request.SerializeToString(deterministic=True)
        cursor = paging.decode_page_token(token, arguments)
        after = str(cursor[0]) if cursor else ""
        subject = convert_quotas.subject_of(request)
        found = await self._limiting.page(subject, after, size + 1, caller())
        more = len(found) > size
        return calls.ListQuotasResponse(
            quotas=[convert_quotas.quota_to_wire(quota) for quota in found[:size]],
            next_page_token=(
                paging.encode_page_token([found[size - 1].id], arguments) if more else ""
            ),
        )

    async def GetUsage(
        self, request: calls.GetUsageRequest, context: Context
    ) -> calls.GetUsageResponse:
        """Say where a subject stands."""
        validation.refuse(list(quota_validation.subject("", request)))
        standing = await self._limiting.usage(convert_quotas.subject_of(request), caller())
        return calls.GetUsageResponse(usage=convert_quotas.usage_to_wire(standing))

    async def VerifyUsage(
        self, request: calls.VerifyUsageRequest, context: Context
    ) -> calls.VerifyUsageResponse:
        """Compare the ledger with the charged leases."""
        drifts = await self._limiting.verify()
        return convert_quotas.drifts_to_wire(drifts, self._limiting.now())
