"""Where pools and policies are kept: PostgreSQL, or memory for tests and simulation."""
