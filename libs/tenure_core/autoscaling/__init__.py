"""Every decision about machines: elastic groups of a master and workers, and whole fleets.

Pure: a state, a listing and a time come in; commands, the next state and an explanation go out.
Talking to providers, agents and databases, and telling the time, is left to `services/`.
`docs/autoscaler-rules.md` says which rule keeps which property (P01–P30).
"""
