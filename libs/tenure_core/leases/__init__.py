"""What a lease is, what it asks for, and how its state may change."""
