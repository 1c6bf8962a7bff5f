"""What a leader does next for each lease, from bookings, reports and the time."""
