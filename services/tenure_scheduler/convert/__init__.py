"""Neighbours' wire messages to the leader's values, and back; a module a neighbour."""
