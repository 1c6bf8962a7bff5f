"""Replays workloads through `tenure_core` on a simulated clock."""
