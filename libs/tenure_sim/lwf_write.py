"""Writes workloads in the lease workload format of Haizea 1.1 (XML)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import TextIO
from xml.sax.saxutils import quoteattr

from tenure_core.leases.lease import Advance, BestEffort, Deadline, Immediate, LeaseSpec
from tenure_core.resources import ResourceVector
from tenure_core.timebase import Millis
from tenure_sim.lwf import IMAGE_SIZE
from tenure_sim.lwf_values import format_amounts, format_span
from tenure_sim.site import Site
from tenure_sim.workload import Workload


def write_lwf(
    workload: Workload,
    out: TextIO,
    *,
    site: Site | None = None,
    attributes: Mapping[str, str] | None = None,
) -> None:
    """Write a workload, with its site where one is given; times count from the first arrival.

    Amounts are rounded up to the format's units: hundredths of a processor, mebibytes.
    """
    begin = workload.arrivals[0] if len(workload) else 0
    out.write('<?xml version="1.0" encoding="UTF-8"?>\n')
    out.write(f"<lease-workload name={quoteattr(workload.name)}>\n")
    out.write(f"  <description>{len(workload)} leases</description>\n")
    if attributes:
        out.write("  <attributes>\n")
        for name, value in sorted(attributes.items()):
            out.write(f"    <attr name={quoteattr(name)} value={quoteattr(value)}/>\n")
        out.write("  </attributes>\n")
    if site is not None:
        out.writelines(_site(site))
    out.write("  <lease-requests>\n")
    for index in range(len(workload)):
        out.writelines(_request(workload, index, begin))
    out.write("  </lease-requests>\n</lease-workload>\n")


def _site(site: Site) -> Iterator[str]:
    kinds = sorted(
        {kind for node in site.nodes for _, amounts in node.capacity for kind in amounts}
    )
    names = " ".join(format_amounts(ResourceVector(dict.fromkeys(kinds, 1))))
    yield f"  <site>\n    <resource-types names={quoteattr(names)}/>\n    <nodes>\n"
    for amounts, nodes in groupby(site.nodes, key=lambda node: node.capacity_at(0)):
        yield _node_set(amounts, len(list(nodes)), "      ")
    yield "    </nodes>\n  </site>\n"


def _node_set(amounts: ResourceVector, count: int, indent: str) -> str:
    inner = "".join(
        f"<res type={quoteattr(kind)} amount={quoteattr(str(amount))}/>"
        for kind, amount in format_amounts(amounts).items()
    )
    return f'{indent}<node-set numnodes="{count}">{inner}</node-set>\n'


def _request(workload: Workload, index: int, begin: Millis) -> Iterator[str]:
    spec = workload.spec(index)
    yield f'    <lease-request arrival="{format_span(workload.arrivals[index] - begin)}">\n'
    if workload.runs[index] < spec.duration_ms:
        yield f'      <realduration time="{format_span(workload.runs[index])}"/>\n'
    user = "" if spec.owner in ("unknown", "trace") else f" user={quoteattr(spec.owner)}"
    preemptible = "true" if spec.preemptible else "false"
    name = quoteattr(workload.ids[index])
    yield f'      <lease id={name} preemptible="{preemptible}"{user}>\n'
    yield f"        <nodes>\n{_node_set(spec.amounts, spec.node_count, '          ')}"
    yield "        </nodes>\n"
    yield from _terms(spec, begin)
    yield _software(spec)
    extras = {key: value for key, value in spec.labels.items() if key != IMAGE_SIZE}
    if extras:
        yield "        <extra>\n"
        for key, value in sorted(extras.items()):
            yield f"          <attr name={quoteattr(key)} value={quoteattr(value)}/>\n"
        yield "        </extra>\n"
    yield "      </lease>\n    </lease-request>\n"


def _terms(spec: LeaseSpec, begin: Millis) -> Iterator[str]:
    deadline: Millis | None = None
    match spec.terms:
        case Immediate():
            start = "<start><now/></start>"
        case Advance(start=at):
            start = _exact(at - begin)
        case Deadline(deadline=deadline, earliest_start=earliest):
            start = "<start/>" if earliest is None else _exact(earliest - begin)
        case BestEffort():
            start = "<start/>"
    yield f'        {start}\n        <duration time="{format_span(spec.duration_ms)}"/>\n'
    if deadline is not None:
        yield f'        <deadline time="{format_span(deadline - begin)}"/>\n'


def _exact(at: Millis) -> str:
    return f'<start><exact time="{format_span(at)}"/></start>'


def _software(spec: LeaseSpec) -> str:
    if not spec.work.image:
        return "        <software><none/></software>\n"
    image, size = quoteattr(spec.work.image), quoteattr(spec.labels.get(IMAGE_SIZE, "0"))
    return f"        <software><disk-image id={image} size={size}/></software>\n"
