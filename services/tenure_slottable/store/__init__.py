"""Where the slot table is kept: PostgreSQL, or memory for tests and simulation."""
