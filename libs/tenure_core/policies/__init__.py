"""The choices that an operator makes for a pool, each a small frozen value the planner asks."""
