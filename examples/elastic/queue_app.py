"""A queue of shell scripts in a folder: `queue_app.py FOLDER`, on each machine of an elastic group.

It is master or worker as it is told. Each file in FOLDER/todo is run by one worker, which takes it
by renaming. The master counts what waits and gives back what lost workers had taken; so a script
may run twice, and must not mind that. With the agent the program meets in TENURE_APPLICATION_DIR.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

AT_ONCE = 2
FOLDER, MEETING = Path(sys.argv[1]), Path(os.environ["TENURE_APPLICATION_DIR"])
TODO, TAKEN, DONE = FOLDER / "todo", FOLDER / "taken", FOLDER / "done"
running: dict[Path, tuple[subprocess.Popen[bytes], float]] = {}
times: list[float] = []


def lead(members: list[str]) -> dict[str, object]:
    """Give back what workers had that do not count any more; say how much waits."""
    for script in TAKEN.glob("*/*"):
        if script.parent.name not in members:
            script.rename(TODO / script.name)
    return {"queue_length": len(list(TODO.iterdir())), "address": "the folder"}


def work(machine: str, *, takes_more: bool) -> dict[str, object]:
    """Take what there is room for, put away what has ended; say how long it takes."""
    for script, (process, began) in list(running.items()):
        if process.poll() is not None:
            del running[script]
            times.append(time.monotonic() - began)
            if script.exists():  # not given back meanwhile
                script.rename(DONE / script.name)
    for script in sorted(TODO.iterdir()) if takes_more else []:
        taken = TAKEN / machine / script.name
        if len(running) == AT_ONCE:
            break
        try:
            taken.parent.mkdir(exist_ok=True)
            script.rename(taken)
        except FileNotFoundError:
            continue  # another was quicker
        running[taken] = (subprocess.Popen(["sh", str(taken)]), time.monotonic())
    mean = {"mean_work_duration": f"{sum(times[-9:]) / len(times[-9:]):.3f}s"} if times else {}
    return {"threads": AT_ONCE, "in_flight": len(running), **mean}


for folder in (TODO, TAKEN, DONE):
    folder.mkdir(parents=True, exist_ok=True)
while True:
    path = MEETING / "order.json"
    order = json.loads(path.read_text()) if path.exists() else {}
    started = order.get("kind") == "KIND_START"
    if started and order.get("is_master"):
        report = lead(order.get("members", []))
    else:
        report = work(order.get("machine", ""), takes_more=started)
    state = "RUNNING" if started else "SHUTTING_DOWN" if running else "READY"
    report |= {"state": f"STATE_{state}", "master_epoch": order.get("master_epoch", "0")}
    new = MEETING / "report.new"
    new.write_text(json.dumps(report))
    new.replace(MEETING / "report.json")
    time.sleep(0.3)
