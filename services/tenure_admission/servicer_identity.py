"""The calls about API keys and tokens: unpack, validate, one use case, pack."""

from __future__ import annotations

from typing import Any, Final

from tenure.admission.v1 import identity_pb2 as pb
from tenure.admission.v1.identity_pb2_grpc import IdentityServiceServicer
from tenure_admission import convert_identity as convert
from tenure_admission import identity_validation as checks
from tenure_admission import validation
from tenure_admission.credentials import new_secret, shown
from tenure_admission.intake import request_key
from tenure_admission.signing import Signing
from tenure_admission.usecases.keyholding import Keyholding
from tenure_core.errors import Forbidden
from tenure_runtime.rpc import paging
from tenure_runtime.rpc.caller import caller
from tenure_runtime.rpc.identity import Credential, Permissions, Role, current_identity
from tenure_runtime.rpc.wire import bare, to_duration

SERVICE: Final = "tenure.admission.v1.IdentityService"
_CLIENTS: Final = frozenset({Role.USER, Role.OPERATOR, Role.SERVICE})
_MAKERS: Final = frozenset({Role.OPERATOR, Role.DOMAIN_ADMIN})
PERMISSIONS: Final = Permissions.of(
    SERVICE,
    {
        "CreateApiKey": _MAKERS,
        "ListApiKeys": _CLIENTS,
        "RotateApiKey": _CLIENTS,
        "RevokeApiKey": _CLIENTS,
        "IssueToken": _CLIENTS,
        "GetSigningKeys": _CLIENTS,
    },
)

# grpc's context is typed by direction only; nothing here uses it.
Context = Any


class IdentityServicer(IdentityServiceServicer):
    """Serves `tenure.admission.v1.IdentityService`."""

    def __init__(self, keyholding: Keyholding, signing: Signing) -> None:
        self._keys = keyholding
        self._signing = signing

    async def CreateApiKey(
        self, request: pb.CreateApiKeyRequest, context: Context
    ) -> pb.CreateApiKeyResponse:
        """Make a key."""
        validation.refuse(checks.create(request, self._keys.now()))
        key_of_request, maker = request_key(request, caller()), convert.grant_of(current_identity())
        wanted, secret = convert.wanted_of(request.api_key), new_secret()
        key = await self._keys.create(wanted, secret, maker, key_of_request)
        return pb.CreateApiKeyResponse(
            api_key=convert.key_to_wire(key), secret=shown(key.id, secret)
        )

    async def ListApiKeys(
        self, request: pb.ListApiKeysRequest, context: Context
    ) -> pb.ListApiKeysResponse:
        """Return a page of keys."""
        validation.refuse(checks.listing(request))
        size, token = paging.page_size(request.page_size, default=100), request.page_token
        request.ClearField("page_size")
        request.ClearField("page_token")
        arguments = request.SerializeToString(deterministic=True)
        cursor = paging.decode_page_token(token, arguments)
        found = await self._keys.page(
            request.caller,
            str(cursor[0]) if cursor else "",
            size + 1,
            convert.grant_of(current_identity()),
            show_ended=request.show_ended,
        )
        more = len(found) > size
        return pb.ListApiKeysResponse(
            api_keys=[convert.key_to_wire(key) for key in found[:size]],
            next_page_token=(
                paging.encode_page_token([found[size - 1].id], arguments) if more else ""
            ),
        )

    async def RotateApiKey(
        self, request: pb.RotateApiKeyRequest, context: Context
    ) -> pb.RotateApiKeyResponse:
        """Make a key in another's place."""
        validation.refuse(checks.rotate(request, self._keys.now()))
        key_of_request, maker = request_key(request, caller()), convert.grant_of(current_identity())
        wanted, secret = convert.rotation_of(request), new_secret()
        before, after = await self._keys.rotate(
            bare(request.name), wanted, secret, maker, key_of_request
        )
        return pb.RotateApiKeyResponse(
            api_key=convert.key_to_wire(after),
            secret=shown(after.id, secret),
            replaced=convert.key_to_wire(before),
        )

    async def RevokeApiKey(
        self, request: pb.RevokeApiKeyRequest, context: Context
    ) -> pb.RevokeApiKeyResponse:
        """Withdraw a key."""
        validation.refuse(checks.revoke(request))
        key_of_request, maker = request_key(request, caller()), convert.grant_of(current_identity())
        key = await self._keys.revoke(bare(request.name), maker, key_of_request)
        return pb.RevokeApiKeyResponse(api_key=convert.key_to_wire(key))

    async def IssueToken(
        self, request: pb.IssueTokenRequest, context: Context
    ) -> pb.IssueTokenResponse:
        """Issue a token for the credential of the call."""
        identity = current_identity()
        if identity.credential is Credential.TOKEN:
            # A token could live on from one to the next, past the end of its key.
            text = "A token is issued for an API key or an OIDC token, not for a token."
            raise Forbidden("CREDENTIAL_NEEDED", text)
        token, lifetime_ms = self._signing.issue(identity)
        return pb.IssueTokenResponse(
            token=token,
            lifetime=to_duration(lifetime_ms),
            caller=identity.name,
            roles=convert.roles_to_wire(identity.roles),
        )

    async def GetSigningKeys(
        self, request: pb.GetSigningKeysRequest, context: Context
    ) -> pb.GetSigningKeysResponse:
        """Return the public keys."""
        return pb.GetSigningKeysResponse(jwks=await self._signing.jwks())
