"""From a frozen snapshot of a pool to a plan: who gets which capacity, when, and why not yet."""
