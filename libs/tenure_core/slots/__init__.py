"""Capacity of nodes over time, and what fits where from when."""
