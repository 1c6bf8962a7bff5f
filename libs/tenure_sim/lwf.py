"""Reads traces in the lease workload format of Haizea 1.1 (XML), with its site.

Times count from the workload's begin, except in annotations, which count from the lease's arrival
(`annotate`). Decided here, where the format leaves room:

- a lease with a deadline may start any time from its start on that still ends by the deadline;
- instances of one kind on one node are added up: a slot of two CPUs of 100 is a slot of two cores;
- a lease whose nodes ask for different amounts is refused: a slot of ours is like any other;
- a real duration counts only where it is shorter than the duration;
- `yes` and `no` are taken for `true` and `false`, as the format's own manual has them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tenure_core.errors import Invalid, Violation
from tenure_core.leases.lease import (
    Advance,
    BestEffort,
    Deadline,
    Immediate,
    LeaseSpec,
    Terms,
    Work,
)
from tenure_core.planning.snapshot import NodeView
from tenure_core.timebase import Millis
from tenure_sim.lwf_values import parse_amounts, parse_flag, parse_span
from tenure_sim.lwf_xml import BadElement, Element, parse_xml, refused
from tenure_sim.site import Site
from tenure_sim.workload import BadLine, SimLease, Workload

NODES_MAX = 1_000_000
IMAGE_SIZE = "lwf/image-size-mib"
"""The label that keeps the size of a lease's disk image."""


@dataclass(frozen=True, slots=True)
class LwfTrace:
    """A file's leases, the site it brings if any, and the attributes it names."""

    workload: Workload
    site: Site | None = None
    attributes: Mapping[str, str] = field(default_factory=dict)


def parse_lwf(name: str, text: bytes, *, skip_bad: bool = False) -> LwfTrace:
    """Make a workload of a document; bad leases as bad lines in `swf.read_swf`."""
    root = parse_xml(name, text)
    if root.tag != "lease-workload":
        raise refused(name, root.line, f"this is a <{root.tag}>, not a <lease-workload>")
    leases: list[SimLease] = []
    bad: list[BadLine] = []
    seen: set[str] = set()
    requests = root.one("lease-requests")
    for request in requests.all("lease-request") if requests is not None else ():
        try:
            lease = _lease(request, seen)
        except BadElement as error:
            bad.append(BadLine(error.line, error.reason))
            continue
        seen.add(lease.id)
        leases.append(lease)
    if bad and not skip_bad:
        raise Invalid(
            [Violation(f"{name}:{entry.line}", "BAD_TRACE_LINE", entry.reason) for entry in bad],
            "BAD_TRACE",
        )
    workload = replace(Workload.of(root.attributes.get("name", name), leases), bad=tuple(bad))
    try:
        return LwfTrace(workload, parse_site(root.one("site")), parse_attributes(root))
    except BadElement as error:
        raise refused(name, error.line, error.reason) from None


def parse_attributes(element: Element, tag: str = "attributes") -> dict[str, str]:
    """Return the names and values of an element's attribute list."""
    listed = element.one(tag)
    if listed is None:
        return {}
    return {attr.get("name"): attr.get("value") for attr in listed.all("attr")}


def parse_site(element: Element | None) -> Site | None:
    """Return the nodes of a site element, numbered over all node sets."""
    if element is None:
        return None
    nodes: list[NodeView] = []
    sets = list(element.need("nodes").all("node-set"))
    total = sum(each.whole("numnodes", 1) for each in sets)
    if total > NODES_MAX:
        raise BadElement(element.line, f"a site has at most {NODES_MAX:,} nodes, not {total:,}")
    for number, each in enumerate(sets, 1):
        capacity = ((0, parse_amounts(each)),)
        for _ in range(each.whole("numnodes", 1)):
            nodes.append(
                NodeView(
                    f"node-{len(nodes) + 1:0{len(str(total))}}", capacity, {"set": str(number)}
                )
            )
    return Site(tuple(nodes)) if nodes else None


def _lease(request: Element, seen: set[str]) -> SimLease:
    lease = request.need("lease")
    name = lease.attributes.get("id", str(len(seen) + 1))
    if name in seen:
        raise BadElement(lease.line, f"lease id {name} is used twice")
    sets = list(lease.need("nodes").all("node-set"))
    amounts = {parse_amounts(each) for each in sets}
    if len(amounts) != 1:
        raise BadElement(
            lease.line, "a lease has at least one node, and all of its nodes ask for the same"
        )
    duration = parse_span(lease.need("duration"), "time")
    if duration <= 0:
        raise BadElement(lease.line, "a duration is longer than nothing")
    arrival = parse_span(request, "arrival")
    deadline = lease.one("deadline")
    spec = LeaseSpec(
        owner=lease.attributes.get("user", "unknown"),
        project="trace",
        pool="sim",
        terms=parse_terms(
            lease.need("start"), None if deadline is None else parse_span(deadline, "time")
        ),
        node_count=sum(each.whole("numnodes", 1) for each in sets),
        amounts=amounts.pop(),
        duration_ms=duration,
        preemptible=parse_flag(lease, "preemptible"),
    )
    spec = with_software(spec, lease.one("software"))
    spec = replace(spec, labels={**spec.labels, **parse_attributes(lease, "extra")})
    real = request.one("realduration")
    run = duration if real is None else min(parse_span(real, "time"), duration)
    return SimLease(name, arrival, spec, max(run, 1))


def parse_terms(start: Element, deadline: Millis | None, since: Millis = 0) -> Terms:
    """Return the terms that a start element and a deadline say, times counted from `since`."""
    exact = start.one("exact")
    if deadline is not None:
        earliest = None if exact is None else since + parse_span(exact, "time")
        return Deadline(since + deadline, earliest)
    if exact is not None:
        return Advance(since + parse_span(exact, "time"))
    return BestEffort() if start.one("now") is None else Immediate()


def with_software(spec: LeaseSpec, software: Element | None) -> LeaseSpec:
    """Return the lease with the image that a software element names, unchanged without one."""
    if software is None:
        return spec
    image = software.one("disk-image")
    labels = {key: value for key, value in spec.labels.items() if key != IMAGE_SIZE}
    if image is None:
        return replace(spec, work=Work(), labels=labels)
    labels[IMAGE_SIZE] = str(image.whole("size"))
    return replace(spec, work=Work(image=image.get("id")), labels=labels)
