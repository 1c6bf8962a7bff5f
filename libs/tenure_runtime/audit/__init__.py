"""The audit trail of a service: written with each change, sealed in a chain, read and verified."""
