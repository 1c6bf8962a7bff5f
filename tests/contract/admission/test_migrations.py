"""Schemas of versions before are brought up to date with what they hold."""

from __future__ import annotations

import pytest
from tests.support.databases import open_test_pool

from tenure_admission.app import PACKAGE, SCHEMA
from tenure_admission.charges import OWNER, PROJECT
from tenure_admission.store.postgres_quotas import PostgresQuotas
from tenure_runtime.postgres.migrate import migrate, migrate_components, migrations_of

pytestmark = pytest.mark.postgres


async def test_limits_that_were_rows_become_quotas_of_their_subjects(database_dsn: str) -> None:
    pool = await open_test_pool(database_dsn, SCHEMA)
    try:
        await migrate_components(pool, SCHEMA, {PACKAGE: migrations_of(PACKAGE)[:1]})
        await pool.executemany(
            "INSERT INTO limits (dimension, name, resource, amount) VALUES ($1, $2, $3, $4)",
            [
                ("owner", "ann", "cpu", 4_000),
                ("owner", "ann", "held_leases", 2),
                ("project", "ann", "memory", 2**53 - 1),
            ],
        )
        await migrate(pool, SCHEMA, PACKAGE)
        quotas = await PostgresQuotas(pool).page(None, "", 10)
    finally:
        await pool.close()

    assert {quota.subject: dict(quota.limits) for quota in quotas} == {
        (OWNER, "ann"): {"cpu": 4_000, "held_leases": 2},
        (PROJECT, "ann"): {"memory": 2**53 - 1},
    }
    assert len({quota.id for quota in quotas}) == len({quota.etag for quota in quotas}) == 2
    assert all(quota.valid is None for quota in quotas)
