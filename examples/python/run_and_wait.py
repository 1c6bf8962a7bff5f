"""Runs a command on a slot, shows what it prints, and ends with its exit code.

python run_and_wait.py -- COMMAND…
"""

import sys

from tenure.client import LeaseEnded, connect

with connect() as plane:
    lease = plane.submit(command=sys.argv[2:], cpu="0.5", memory="128Mi", duration="5m")
    try:
        code = lease.result(within_s=300).exit_code
    except LeaseEnded as ended:
        print(ended, file=sys.stderr)
        code = ended.lease.exit_code
    for part in lease.output():
        sys.stdout.buffer.write(part)
sys.exit(code)
