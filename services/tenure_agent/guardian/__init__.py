"""The processes between the agent and the work, so that the work never outlives its fence.

Everything here runs in small processes of its own, forked from a warm one. It imports the standard
library only, and little of it: what is imported here is what each lease pays for.
"""
