"""Capacity over time: the only truth of what is held. README.md beside this file says more."""
