"""PostgreSQL: pools, transactions, migrations, request ids, change feeds and group commit."""
