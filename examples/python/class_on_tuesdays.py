"""Books two slots for a class on the next four Tuesdays at nine, then gives the bookings up."""

from datetime import UTC, datetime, timedelta

from tenure.client import LeaseState, connect

TUESDAY = 1
now = datetime.now(UTC)
first = (now + timedelta(days=(TUESDAY - now.weekday()) % 7 or 7)).replace(
    hour=9, minute=0, second=0, microsecond=0
)

with connect() as plane:
    for week in range(4):
        start = first + timedelta(weeks=week)
        lease = plane.submit(nodes=2, cpu=1, start=start, duration="2h", labels={"class": "hpc"})
        info = lease.wait(LeaseState.SCHEDULED, within_s=60)
        print(f"{start:%A %H:%M}", info.state.name.lower(), info.reason.lower())
    for info in plane.leases(labels={"class": "hpc"}, states=[LeaseState.SCHEDULED]):
        plane.lease(info.id).cancel()
