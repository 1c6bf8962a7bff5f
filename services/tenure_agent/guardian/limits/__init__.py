"""What holds work to the processor, memory and processes that its lease was given.

One port (`bounds.Group`), a module a kind: cgroup v1, cgroup v2, rlimits. The agent
decides which (`tenure_agent.limits`); guardians make, enter, leave and remove the group of their
work. Imports the standard library only, as all of the guardian does.
"""
