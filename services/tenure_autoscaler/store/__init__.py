"""Where the autoscaler keeps what it must not forget: in memory, or in PostgreSQL."""
