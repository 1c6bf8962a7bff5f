"""What `tenure up` runs on one machine: a private PostgreSQL, a private etcd, child processes."""
