"""One leader a scope: the elector's port and its adapters for etcd, PostgreSQL and tests."""
