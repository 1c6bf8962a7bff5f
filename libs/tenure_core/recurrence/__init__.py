"""Bookings that recur: from a rule on a calendar to instants."""
