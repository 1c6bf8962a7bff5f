"""Holds two different nodes for as long as a block takes, and gives them back."""

from tenure.client import connect

with connect() as plane:
    with plane.hold(nodes=2, spread=True, cpu=1, duration="10m", within_s=60) as lease:
        print("held:", " and ".join(sorted(lease.info.nodes)))
    print("then:", lease.wait(within_s=60).state.name.lower())
