"""Where the registry keeps what it must not forget: in memory, or in PostgreSQL."""
