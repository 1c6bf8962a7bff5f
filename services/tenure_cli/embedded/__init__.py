"""The whole suite on one machine, as `tenure up` runs it."""
