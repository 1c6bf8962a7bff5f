"""Reads a trace of any form that is known, and converts it to any that can be written.

The form is told by what the file says, not by its name: XML is the lease workload format, JSON our
own, a header of a plain table that, and lines of 18 or 10 numbers the Standard Workload Format or
the old text form of leases. Files may be gzipped.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TextIO

from tenure_core.errors import Invalid, NotFound, Violation
from tenure_core.resources import ResourceVector
from tenure_sim.convert_limits import within_limits
from tenure_sim.site import Site
from tenure_sim.workload import SLOT, Workload

SWF, TEXT, XML, JSON, TABLE = "swf", "lwf-text", "lwf", "json", "table"
_MACHINE = re.compile(r";\s*(MaxProcs|MaxNodes)\s*:\s*(\d+)", re.IGNORECASE)
_GZIP: Final = b"\x1f\x8b"
_HEADER_BYTES: Final = 64_000
PROCESSORS_MAX: Final = 10_000_000


@dataclass(frozen=True, slots=True)
class Trace:
    """A trace as read: its leases, its form, and the site or machine size that it names."""

    workload: Workload
    form: str
    site: Site | None = None


def read_bytes(path: Path) -> bytes:
    """Return a file's content, unpacked when it is gzipped.

    Raises NotFound, and Invalid for a file that is broken.
    """
    try:
        raw = path.read_bytes()
        return gzip.decompress(raw) if raw.startswith(_GZIP) else raw
    except FileNotFoundError:
        raise NotFound("TRACE_NOT_FOUND", f"there is no file {path}") from None
    except (OSError, EOFError, zlib.error) as error:
        violation = Violation(path.name, "BAD_TRACE", f"the file cannot be read: {error}")
        raise Invalid([violation], "BAD_TRACE") from None


def read_trace(
    path: Path,
    *,
    site: Site | None = None,
    slot: ResourceVector = SLOT,
    first: int | None = None,
    skip_bad: bool = False,
) -> Trace:
    """Read a trace for a site; without one, for the site that the trace itself names.

    `slot` is what one processor or node of a trace without amounts stands for. `first` keeps so
    many leases. Raises Invalid with line and reason for what cannot be read; with `skip_bad` such
    lines are left out and listed in the workload.
    """
    trace = _read(path, site=site, slot=slot, first=first, skip_bad=skip_bad)
    workload = within_limits(path.name, trace.workload, skip_bad=skip_bad)
    return trace if workload is trace.workload else replace(trace, workload=workload)


def _read(
    path: Path,
    *,
    site: Site | None,
    slot: ResourceVector,
    first: int | None,
    skip_bad: bool,
) -> Trace:
    raw = read_bytes(path)
    name = _stem(path.name)
    match _form(raw):
        case "xml":
            from tenure_sim.annotate import compact
            from tenure_sim.lwf import parse_lwf

            found = parse_lwf(name, raw, skip_bad=skip_bad)
            return _cut(Trace(compact(found.workload), XML, site or found.site), first)
        case "json":
            from tenure_sim.annotate import compact
            from tenure_sim.traces_json import parse_json

            workload, own = parse_json(name, _lines(raw), skip_bad=skip_bad)
            return _cut(Trace(compact(workload), JSON, site or own), first)
        case "table":
            from tenure_sim.traces_table import parse_table

            workload = parse_table(name, _lines(raw), skip_bad=skip_bad)
            return _cut(Trace(replace(workload, slot=slot), TABLE, site), first)
        case "text":
            from tenure_sim.lwf_text import parse_lwf_text

            workload = parse_lwf_text(name, _lines(raw), skip_bad=skip_bad)
            return _cut(Trace(replace(workload, slot=slot), TEXT, site), first)
    return _read_swf(name, raw, site, slot, first, skip_bad=skip_bad)


def write_trace(trace: Trace, form: str, out: TextIO) -> None:
    """Write a trace as `lwf` (XML) or `json`, with its site."""
    if form == XML:
        from tenure_sim.lwf_write import write_lwf

        write_lwf(trace.workload, out, site=trace.site)
    else:
        from tenure_sim.traces_json import write_json

        write_json(trace.workload, out, site=trace.site)


def _stem(name: str) -> str:
    for suffix in (".gz", ".swf", ".lwf", ".csv", ".json", ".xml"):
        name = name.removesuffix(suffix)
    return name


def _cut(trace: Trace, first: int | None) -> Trace:
    if first is None or first >= len(trace.workload):
        return trace
    return replace(trace, workload=trace.workload.first(first))


def _lines(raw: bytes) -> list[str]:
    return raw.decode("utf-8", errors="replace").split("\n")


def _read_swf(
    name: str,
    raw: bytes,
    site: Site | None,
    slot: ResourceVector,
    first: int | None,
    *,
    skip_bad: bool,
) -> Trace:
    from tenure_sim.swf import parse_swf

    if site is None:
        site = _machine(raw, slot)
        if site is None:
            violation = Violation(
                name, "NO_SITE", "the trace does not say how large its machine is: give --nodes"
            )
            raise Invalid([violation], "NO_SITE")
    processors = site.slots_of(slot) or 0
    text = raw.decode("utf-8", errors="replace")
    workload = parse_swf(name, text, processors=processors, first=first, skip_bad=skip_bad)
    if len(set(workload.ids)) < len(workload):
        workload = replace(workload, ids=_unique(workload.ids))
    return Trace(workload if slot == SLOT else replace(workload, slot=slot), SWF, site)


def _unique(ids: Sequence[str]) -> list[str]:
    """Return job ids of which the second of its name is `ID.2`, and so on."""
    counts: Counter[str] = Counter()
    unique = []
    for name in ids:
        counts[name] += 1
        unique.append(name if counts[name] == 1 else f"{name}.{counts[name]}")
    return unique


def _machine(raw: bytes, slot: ResourceVector) -> Site | None:
    """Return the machine that the header comments of a trace describe, None when they do not."""
    head = raw[:_HEADER_BYTES].decode("utf-8", errors="replace")
    sizes = {key.lower(): int(size) for key, size in _MACHINE.findall(head)}
    count = sizes.get("maxprocs") or sizes.get("maxnodes")
    if not count:
        return None
    if count > PROCESSORS_MAX:
        raise Invalid(
            [Violation("site", "BAD_SITE", f"a machine has at most {PROCESSORS_MAX:,} processors")],
            "BAD_SITE",
        )
    return Site.of_processors(count, slot)


def _form(raw: bytes) -> str:
    head = raw[:4_096].lstrip(b"\xef\xbb\xbf \t\r\n")
    if head.startswith(b"<"):
        return "xml"
    if head.startswith(b"{"):
        return "json"
    if head.startswith(b"lease,kind,"):
        return "table"
    for line in raw[:_HEADER_BYTES].split(b"\n"):
        fields = line.split()
        if fields and fields[0][:1] not in (b";", b"#"):
            return "text" if len(fields) == 10 else "swf"
    return "swf"
