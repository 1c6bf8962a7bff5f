"""Brings a service's schema to the version its program knows.

Decides the rules: files `NNNN_name.sql` without a gap from 0001, each run once in a transaction of
its own under an advisory lock. A file only adds what older programs need not know (columns have
defaults, nothing they read or write goes away), so that they run beside newer ones and can be
started again. One that does more is named `NNNN_name.contract.sql`: a program that does not know it
is refused from then on, as is a file that changed after it ran. The tables of this library (request
ids, change feeds) live in the same schema and come first. What the files say is left to the
services.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from importlib import resources
from typing import Final

from tenure_runtime.postgres.pool import Pool
from tenure_runtime.postgres.transaction import Connection
from tenure_runtime.telemetry.logging import get_logger

_FILE: Final = re.compile(r"(\d{4})_([a-z0-9_]+)(\.contract)?\.sql")
_SCHEMA: Final = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_RUNTIME: Final = ("runtime", "tenure_runtime.postgres")
# Any constant will do; it only must not be another's.
_LOCK: Final = 0x7E4C1E

_TABLE: Final = """
CREATE TABLE IF NOT EXISTS schema_migrations (
    component  text NOT NULL,
    number     integer NOT NULL,
    name       text NOT NULL,
    checksum   text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (component, number)
);
ALTER TABLE schema_migrations ADD COLUMN IF NOT EXISTS contracts boolean NOT NULL DEFAULT false
"""


class SchemaRefused(Exception):
    """The schema lacks what this program needs, or its history differs from the program's files."""


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered file; when it `contracts`, programs that do not know it cannot go on."""

    number: int
    name: str
    sql: str
    contracts: bool = False

    @property
    def checksum(self) -> str:
        """Return the SHA-256 of the file."""
        return hashlib.sha256(self.sql.encode()).hexdigest()


def migrations_of(package: str) -> list[Migration]:
    """Return the files in the package's `migrations/` in order. Raises ValueError for a gap."""
    found = []
    for entry in (resources.files(package) / "migrations").iterdir():
        match = _FILE.fullmatch(entry.name)
        if match:
            sql = entry.read_text(encoding="utf-8")
            found.append(Migration(int(match[1]), match[2], sql, match[3] is not None))
    found.sort(key=lambda migration: migration.number)
    if [migration.number for migration in found] != list(range(1, len(found) + 1)):
        raise ValueError(
            f"the migrations of {package} are not numbered 0001, 0002, … without a gap"
        )
    return found


async def migrate(pool: Pool, schema: str, package: str) -> None:
    """Create the schema if need be and run what it lacks of the library and of `package`.

    Safe to call from several replicas at once. Raises SchemaRefused.
    """
    await migrate_components(
        pool,
        schema,
        {_RUNTIME[0]: migrations_of(_RUNTIME[1]), package: migrations_of(package)},
    )


async def migrate_components(
    pool: Pool, schema: str, components: dict[str, list[Migration]]
) -> None:
    """Run what the schema lacks of each component, in the order given. Raises SchemaRefused."""
    assert _SCHEMA.fullmatch(schema), schema
    async with pool.acquire() as connection:
        await connection.execute("SELECT pg_advisory_lock($1, hashtext($2))", _LOCK, schema)
        try:
            await connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{schema}"')
            await connection.execute(f'SET search_path TO "{schema}"')
            await connection.execute(_TABLE)
            for component, migrations in components.items():
                await _check(connection, component, migrations)
            for component, migrations in components.items():
                await _apply(connection, component, migrations)
        finally:
            await connection.execute("SELECT pg_advisory_unlock($1, hashtext($2))", _LOCK, schema)
            await connection.execute("RESET search_path")


async def _check(connection: Connection, component: str, migrations: list[Migration]) -> None:
    rows = await connection.fetch(
        "SELECT number, name, checksum, contracts FROM schema_migrations"
        " WHERE component = $1 ORDER BY number",
        component,
    )
    unknown = rows[len(migrations) :]
    if any(row["contracts"] for row in unknown):
        raise SchemaRefused(
            f"the schema is at migration {rows[-1]['number']} of {component}, this program knows "
            f"{len(migrations)}, and one of the others takes away what it needs: start a newer "
            "program"
        )
    if unknown:
        get_logger().warning(
            "migration.unknown", component=component, known=len(migrations), found=len(rows)
        )
    for row, migration in zip(rows, migrations, strict=False):
        if row["number"] != migration.number or row["checksum"] != migration.checksum:
            raise SchemaRefused(
                f"migration {row['number']:04}_{row['name']} of {component} was changed after"
                " it ran"
            )


async def _apply(connection: Connection, component: str, migrations: list[Migration]) -> None:
    done = await connection.fetchval(
        "SELECT count(*) FROM schema_migrations WHERE component = $1", component
    )
    for migration in migrations[done:]:
        async with connection.transaction():
            await connection.execute(migration.sql)
            await connection.execute(
                "INSERT INTO schema_migrations (component, number, name, checksum, contracts)"
                " VALUES ($1, $2, $3, $4, $5)",
                component,
                migration.number,
                migration.name,
                migration.checksum,
                migration.contracts,
            )
        get_logger().info(
            "migration.applied", component=component, number=migration.number, name=migration.name
        )
