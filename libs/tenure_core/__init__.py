"""Every decision that Tenure makes, as pure code: no socket, database, clock or randomness.

What decides (slot table, planner, policies, state machines) lives here; what carries lives in
`services/`. Time, chance and names come in as arguments.
"""
