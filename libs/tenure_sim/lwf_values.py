"""The words of the lease workload format: spans of time, and amounts in its own units.

It counts CPU in hundredths of a processor, memory and disk in mebibytes, and anything else as it
is.
"""

from __future__ import annotations

import re
from typing import Final

from tenure_core.resources import ResourceVector
from tenure_core.timebase import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, Millis
from tenure_sim.lwf_xml import BadElement, Element

_SPAN = re.compile(r"(?:(\d+):)?(\d+):(\d{1,2}):(\d{1,2})(?:\.(\d+))?")
_UNITS: Final = {"cpu": 10, "memory": 2**20, "disk": 2**20}
MIB: Final = 2**20


def parse_span(element: Element, name: str) -> Millis:
    """Return an attribute of the form [DD:]HH:MM:SS[.ff] in milliseconds."""
    text = element.get(name).strip()
    match = _SPAN.fullmatch(text)
    if match is None:
        raise BadElement(
            element.line, f"{name} of <{element.tag}> is [DD:]HH:MM:SS[.ff], not {text!r}"
        )
    days, hours, minutes, seconds, fraction = match.groups()
    span = int(days or 0) * DAY_MS + int(hours) * HOUR_MS + int(minutes) * MINUTE_MS
    span += int(seconds) * SECOND_MS
    return span + round(float(f"0.{fraction or 0}") * SECOND_MS)


def format_span(span: Millis) -> str:
    """Return milliseconds as HH:MM:SS[.fff]; hours may have more than two digits."""
    seconds, rest = divmod(span, SECOND_MS)
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{text}.{rest:03}" if rest else text


def parse_flag(element: Element, name: str) -> bool:
    """Return an attribute that is true or false; yes and no mean the same."""
    text = element.get(name).strip().lower()
    if text in ("true", "yes"):
        return True
    if text in ("false", "no"):
        return False
    raise BadElement(element.line, f"{name} of <{element.tag}> is true or false, not {text!r}")


def parse_amounts(node_set: Element) -> ResourceVector:
    """Return what one node of a node set has or is asked for; instances of a kind are added up."""
    amounts: dict[str, int] = {}
    for resource in node_set.all("res"):
        kind = resource.get("type").strip().lower()
        instances = list(resource.all("instance"))
        counted = [each.whole("amount") for each in instances] or [resource.whole("amount")]
        amounts[kind] = amounts.get(kind, 0) + sum(counted) * _UNITS.get(kind, 1)
    try:
        return ResourceVector(amounts)
    except ValueError as error:
        raise BadElement(node_set.line, str(error)) from None


def format_amounts(amounts: ResourceVector) -> dict[str, int]:
    """Return amounts by the format's own names, rounded up to its units."""
    names = {"cpu": "CPU", "memory": "Memory", "disk": "Disk"}
    return {
        names.get(kind, kind): -(-amount // _UNITS.get(kind, 1)) for kind, amount in amounts.items()
    }
