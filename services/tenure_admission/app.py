"""Puts admission together: the only place that knows its concrete parts."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Final, Protocol

from tenure.admission.v1.admission_pb2_grpc import add_AdmissionServiceServicer_to_server
from tenure.admission.v1.identity_pb2_grpc import add_IdentityServiceServicer_to_server
from tenure.type.v1.service_info_pb2 import ServiceInfo
from tenure_admission import auditing, convert, convert_calls, metrics, servicer_identity
from tenure_admission.clients import PolledPools
from tenure_admission.credentials import ApiKeyVerifier, digest
from tenure_admission.identity_ports import KeyBook, SigningKeyBook
from tenure_admission.intake import Intake
from tenure_admission.leader_desk import NobodyThere, SchedulerDesk
from tenure_admission.notices.service import keep_notices
from tenure_admission.notices.servicer import PERMISSIONS as NOTICE_PERMISSIONS
from tenure_admission.oidc import OidcKeys, OidcSettings, OidcVerifier
from tenure_admission.pool_view import AllOpen
from tenure_admission.ports import (
    LeaderDesk,
    LeaseChanger,
    LeaseCreator,
    LeaseFeed,
    LeaseReader,
    PoolDirectory,
    PoolGates,
    QuotaBook,
    RequestLog,
    SecretStore,
    TransitionRecorder,
)
from tenure_admission.secret_values import SecretValues
from tenure_admission.servicer import PERMISSIONS, SERVICE, AdmissionServicer, UseCases
from tenure_admission.servicer_identity import IdentityServicer
from tenure_admission.settings import AdmissionSettings
from tenure_admission.signing import Signing, SigningTimes
from tenure_admission.store.forgetting import EndedLeases
from tenure_admission.store.fullness import fullness
from tenure_admission.store.postgres import PostgresStore
from tenure_admission.upkeep import Upkeep
from tenure_admission.usecases.changing import Changing
from tenure_admission.usecases.creating import Creating
from tenure_admission.usecases.explaining import Explaining
from tenure_admission.usecases.keyholding import Keyholding
from tenure_admission.usecases.limiting import Limiting
from tenure_admission.usecases.reading import Reading
from tenure_admission.usecases.recording import Recording
from tenure_admission.usecases.remedying import Remedying
from tenure_admission.usecases.repeating import Repeating
from tenure_admission.usecases.sealing import Sealing
from tenure_admission.usecases.waiting import Waiting
from tenure_core.timebase import Clock
from tenure_runtime.audit.service import keep_trail
from tenure_runtime.audit.servicer import PERMISSIONS as AUDIT_PERMISSIONS
from tenure_runtime.clocks import SystemClock
from tenure_runtime.ids import RandomIds
from tenure_runtime.postgres.migrate import migrate, migrations_of
from tenure_runtime.postgres.pool import PoolOptions, observed_pool, open_pool
from tenure_runtime.postgres.transaction import run
from tenure_runtime.process import announce, run_loop, running
from tenure_runtime.rpc.client import Client, connect
from tenure_runtime.rpc.draining import Draining
from tenure_runtime.rpc.gate import Gate, Verifier
from tenure_runtime.rpc.identity import Keyring
from tenure_runtime.rpc.key_sets import REFRESH_S, KeySet
from tenure_runtime.rpc.published_keys import rate_of
from tenure_runtime.rpc.server import RpcServer, ServerOptions
from tenure_runtime.rpc.tokens import TokenVerifier
from tenure_runtime.sealing import SecretKeys
from tenure_runtime.service_info import service_info

SCHEMA: Final = "admission"
PACKAGE: Final = "tenure_admission"
QUOTAS_MEASURED_S: Final = 10.0
_PERMISSIONS: Final = (
    PERMISSIONS.also(servicer_identity.PERMISSIONS).also(AUDIT_PERMISSIONS).also(NOTICE_PERMISSIONS)
)


class Keys(KeyBook, SigningKeyBook, Protocol):
    """The keys of callers, and those by which tokens are signed."""


class Store(
    LeaseCreator,
    RequestLog,
    LeaseReader,
    LeaseChanger,
    TransitionRecorder,
    LeaseFeed,
    SecretStore,
    Protocol,
):
    """All that the use cases need of a store, in one object."""

    @property
    def quotas(self) -> QuotaBook:
        """Return the quotas beside the leases."""
        ...

    @property
    def keys(self) -> Keys:
        """Return the API keys and the signing keys."""
        ...


@dataclass(frozen=True, slots=True)
class Parts:
    """The servicers, and what runs beside them.

    `waiting.run()` belongs in a TaskGroup, `signing.run_once` before the first call and in a loop.
    `verifiers` are for the server's gate.
    """

    servicer: AdmissionServicer
    identity: IdentityServicer
    waiting: Waiting
    signing: Signing
    verifiers: tuple[Verifier, ...]
    key_sets: tuple[KeySet, ...]

    async def refresh_keys(self) -> None:
        """Look for changes of the keys by which tokens are verified; a loop's body."""
        for keys in self.key_sets:
            await keys.run_once()


def build(
    store: Store,
    pools: PoolDirectory,
    clock: Clock,
    info: ServiceInfo,
    *,
    ids: RandomIds | None = None,
    gates: PoolGates | None = None,
    desk: LeaderDesk | None = None,
    signing_times: SigningTimes | None = None,
    oidc: OidcSettings | None = None,
    secret_keys: SecretKeys | None = None,
) -> Parts:
    """Return the servicer over a store; tests build theirs here too, with `ids` that repeat.

    Without `gates` no pool is known to be cordoned, without a `desk` no leader is asked, without
    `secret_keys` no lease may have secrets.
    """
    # Ids need to differ, not to be unguessable; the generator is seeded by the system.
    ids = ids or RandomIds(random.Random())  # noqa: S311
    secrets = SecretValues(secret_keys)
    waiting = Waiting(store, store, convert.decode)
    use_cases = UseCases(
        Creating(store),
        Reading(store, store, convert_calls.heading_of),
        Changing(store, pools, clock, ids),
        waiting,
        Explaining(
            store,
            Remedying(store, store.quotas, desk or NobodyThere()),
            convert.decode,
            clock,
        ),
        Recording(store, clock),
        Repeating(store),
        Limiting(store.quotas, clock),
        Sealing(store, secrets),
    )
    signing = Signing(store.keys, clock, ids, signing_times)
    own_keys = KeySet(signing.fetch)
    issuers = [] if oidc is None else [KeySet(OidcKeys(oidc.issuer).fetch)]
    foreign = [] if oidc is None else [OidcVerifier(oidc, issuers[0], clock)]
    return Parts(
        AdmissionServicer(use_cases, Intake(pools, gates or AllOpen(), clock, ids, secrets), info),
        IdentityServicer(Keyholding(store.keys, clock, ids, digest), signing),
        waiting,
        signing,
        (ApiKeyVerifier(store.keys, clock), TokenVerifier(own_keys, clock), *foreign),
        (own_keys, *issuers),
    )


@asynccontextmanager
async def app(settings: AdmissionSettings) -> AsyncIterator[None]:
    """Serve until left."""
    assert settings.keyring_file is not None, "TENURE_KEYRING_FILE says who may call"
    pool = await open_pool(PoolOptions(settings.database_dsn, SCHEMA))
    await migrate(pool, SCHEMA, PACKAGE)
    clock, draining = SystemClock(), Draining()
    store = await PostgresStore.open(pool, draining)
    info = service_info("admission", settings.instance, clock.now_ms(), len(migrations_of(PACKAGE)))

    upkeep = Upkeep(
        store,
        store.quotas,
        clock,
        int(settings.feed_retention_s * 1_000),
        int(settings.request_retention_s * 1_000),
    )

    ended = EndedLeases(pool, settings.lease_retention_ms, settings.ended_leases_max)

    async def measure_quotas() -> None:
        full = await run(pool, fullness)
        metrics.QUOTA_FULLNESS.replace(dict(full))

    async with AsyncExitStack() as stack:
        stack.enter_context(observed_pool(pool))
        scheduler = await _neighbour(stack, settings, settings.scheduler_address)
        slottable = await _neighbour(stack, settings, settings.slottable_address)
        pools = PolledPools(slottable, scheduler)
        parts = build(
            store,
            pools,
            clock,
            info,
            gates=pools,
            desk=await _desk(stack, settings, scheduler),
            signing_times=settings.signing_times,
            oidc=settings.oidc,
            secret_keys=settings.secret_keys,
        )
        await parts.signing.run_once()
        keyring = Keyring.load(settings.keyring_file)
        server = RpcServer(
            ServerOptions("admission", settings.listen, tls=settings.tls),
            keyring=keyring,
            permissions=_PERMISSIONS,
            draining=draining,
            gate=Gate(keyring, parts.verifiers, calls=rate_of(settings)),
        )
        server.add(add_AdmissionServiceServicer_to_server, parts.servicer, SERVICE)
        server.add(add_IdentityServiceServicer_to_server, parts.identity, servicer_identity.SERVICE)
        loops = [
            store.run(),
            await keep_trail(server, pool, settings.trail_limits, auditing.shown),
            *keep_notices(server, pool, settings, clock),
            parts.waiting.run(),
            run_loop("admission.pools", pools.run_once, period_s=settings.pools_period_s),
            run_loop("admission.signing", parts.signing.run_once, period_s=REFRESH_S),
            run_loop("admission.token_keys", parts.refresh_keys, period_s=REFRESH_S),
            run_loop("admission.trim", upkeep.trim_feed, period_s=60),
            run_loop("admission.requests", upkeep.forget_requests, period_s=600),
            run_loop("admission.ended", ended.run_once, period_s=600),
            run_loop("admission.spent", upkeep.forget_spent, period_s=3_600),
            run_loop("admission.audit", upkeep.audit_ledger, period_s=900),
            run_loop("admission.fullness", measure_quotas, period_s=QUOTAS_MEASURED_S),
        ]
        async with running(loops):
            port = await server.start()
            announce(settings.ready_file, port=port)
            try:
                yield
            finally:
                await server.stop(settings.grace_s)
    await pool.close()


async def _desk(
    stack: AsyncExitStack, settings: AdmissionSettings, scheduler: Client | None
) -> LeaderDesk | None:
    if scheduler is None:
        return None
    desk = SchedulerDesk(
        scheduler, lambda address: connect(address, api_key=settings.api_key, tls=settings.tls)
    )
    stack.push_async_callback(desk.close)
    return desk


async def _neighbour(
    stack: AsyncExitStack, settings: AdmissionSettings, address: str | None
) -> Client | None:
    if address is None:
        return None
    client = connect(address, api_key=settings.api_key, tls=settings.tls)
    return await stack.enter_async_context(client)
