"""The one library that touches the outside: gRPC, PostgreSQL, etcd, telemetry, processes."""
