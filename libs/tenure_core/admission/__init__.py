"""Who may hold what, in which order, and where: the rules that admission and the planner share.

The rules come from the session scheduler that Tenure descends from (`docs/backendai-rules.md` names
the section behind each). Where that scheduler is known to be wrong, the rule takes an argument: the
default is what is right, the other value is what the ancestor does, so that both can be shown.
"""
