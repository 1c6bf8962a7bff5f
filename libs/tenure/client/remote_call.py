"""Runs one call of a `LeaseExecutor` on a node: `python -m tenure.client.remote_call`.

Reads the call from $TENURE_CALL (base64) or the file $TENURE_CALL_FILE, and leaves the outcome on
stdout behind a mark, or in the file beside it. Both are pickles: of a call that its owner made, and
read by its owner. This module is loaded on the node, so it imports next to nothing.
"""

from __future__ import annotations

import base64
import os
import pickle
import runpy
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

CALL: Final = "TENURE_CALL"
CALL_FILE: Final = "TENURE_CALL_FILE"
BEGIN: Final = b"\n--- tenure outcome "
END: Final = b" ---\n"


@dataclass(frozen=True, slots=True)
class Call:
    """A function by name, its arguments as a pickle, and where its modules are found."""

    main: str | None
    path: list[str]
    pickled: bytes


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a call came to: a value, or an exception with its traceback as text."""

    value: Any = None
    error: BaseException | None = None
    trace: str = ""


def carry_out(call: Call) -> Outcome:
    """Return the outcome of a call."""
    try:
        sys.path.extend(entry for entry in call.path if entry not in sys.path)
        if call.main is not None:
            load_main(call.main)
        function, args, kwargs = pickle.loads(call.pickled)  # noqa: S301 - our owner's own call
        return Outcome(function(*args, **kwargs))
    except BaseException as error:  # noqa: BLE001 - the edge: its owner is told, whatever it was
        return Outcome(error=error, trace=traceback.format_exc())


def load_main(file: str) -> None:
    """Make what the caller's script defines known as `__main__`, without running its main part."""
    names = runpy.run_path(file, run_name="__tenure_call__")
    vars(sys.modules["__main__"]).update(
        {name: value for name, value in names.items() if not name.startswith("__")}
    )


def packed(outcome: Outcome) -> bytes:
    """Return an outcome as a pickle; what cannot be pickled becomes an error that says so."""
    try:
        return pickle.dumps(outcome)
    except Exception as error:  # noqa: BLE001 - any object may fail in its own way
        what = outcome.error if outcome.error is not None else outcome.value
        told = TypeError(f"what the call came to cannot be pickled: {what!r} ({error})")
        return pickle.dumps(Outcome(error=told, trace=outcome.trace))


def main() -> None:
    """Carry out the call that the environment names."""
    # Pickles name these classes by this module, not by `__main__`.
    from tenure.client import remote_call

    named = os.environ.get(CALL_FILE)
    text = Path(named).read_bytes() if named else base64.b64decode(os.environ[CALL])
    call = pickle.loads(text)  # noqa: S301 - our owner's own call
    outcome = remote_call.packed(remote_call.carry_out(call))
    sys.stdout.flush()
    if named:
        target = Path(named).with_suffix(".outcome")
        partial = target.with_suffix(".partial")
        partial.write_bytes(outcome)
        partial.replace(target)
    else:
        os.write(1, BEGIN + str(len(outcome)).encode() + b"\n")
        rest = memoryview(base64.b64encode(outcome) + END)
        while rest:
            rest = rest[os.write(1, rest) :]


if __name__ == "__main__":
    main()
