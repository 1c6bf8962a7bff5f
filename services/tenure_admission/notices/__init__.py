"""Notices: what owners are told of their leases, and how it reaches them."""
