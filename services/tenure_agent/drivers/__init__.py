"""Ways to enact allocations, all behind `ports.Driver`."""
