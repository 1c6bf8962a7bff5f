"""Where the lease book is kept: PostgreSQL, or memory for simulations and tests."""
