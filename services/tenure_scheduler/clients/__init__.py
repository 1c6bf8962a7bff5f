"""The neighbours behind the leader's ports; a module a neighbour."""
