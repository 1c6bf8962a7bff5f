"""Fixtures for all tests; they load what they need when they are used."""

from tests.support.databases import database_dsn, postgres_server

__all__ = ["database_dsn", "postgres_server"]
