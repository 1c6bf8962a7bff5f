"""Changes the leases of a workload: annotations of their terms, and leases injected among them.

An annotation file (`<lease-annotations>`) replaces a lease's start, deadline or software and adds
to its extras; times count from the arrival of the lease. Either every annotation has an id and is
applied to that lease, or none has and they are applied in order. Injected leases are merged by
arrival, behind those of the same instant, and their ids are moved out of the way.
"""

from __future__ import annotations

from dataclasses import replace

from tenure_core.leases.lease import Advance, Deadline, LeaseSpec
from tenure_core.timebase import Millis
from tenure_sim.lwf import parse_attributes, parse_terms, with_software
from tenure_sim.lwf_values import parse_span
from tenure_sim.lwf_xml import BadElement, Element, parse_xml, refused
from tenure_sim.workload import SimLease, Workload

INJECTED = 1_000_000
"""What is added to the number of an injected lease, so that it meets no other."""


def annotated(workload: Workload, name: str, text: bytes) -> Workload:
    """Return the workload with an annotation file applied.

    Raises Invalid, with the line, for what is no annotation, for a file that gives some ids but not
    all, and for one that names a lease that is not there.
    """
    root = parse_xml(name, text)
    if root.tag != "lease-annotations":
        raise refused(name, root.line, f"this is a <{root.tag}>, not <lease-annotations>")
    annotations = list(root.all("lease-annotation"))
    with_id = [each for each in annotations if "id" in each.attributes]
    if with_id and len(with_id) != len(annotations):
        line = next(each.line for each in annotations if "id" not in each.attributes)
        raise refused(name, line, "either every annotation has an id, or none has")
    leases = as_leases(workload)
    places = {lease.id: index for index, lease in enumerate(leases)}
    for number, annotation in enumerate(annotations):
        place = places.get(annotation.attributes["id"]) if with_id else number
        if place is None or place >= len(leases):
            raise refused(name, annotation.line, "there is no lease for this annotation")
        try:
            leases[place] = _annotated(leases[place], annotation)
        except BadElement as error:
            raise refused(name, error.line, error.reason) from None
    return as_workload(workload, leases)


def injected(workload: Workload, others: Workload) -> Workload:
    """Return the workload with others' leases merged in; both begin at the same instant 0."""
    leases = as_leases(workload)
    taken = {lease.id for lease in leases}
    for lease in as_leases(others):
        moved = str(int(lease.id) + INJECTED) if lease.id.isdigit() else f"injected-{lease.id}"
        if moved in taken:
            moved = f"{moved}-{len(taken)}"
        taken.add(moved)
        leases.append(replace(lease, id=moved))
    merged = as_workload(workload, leases)
    return replace(
        merged,
        name=f"{workload.name}+{others.name}",
        bad=(*workload.bad, *others.bad),
        left_out=workload.left_out + others.left_out,
    )


def from_zero(workload: Workload) -> Workload:
    """Return the workload moved in time so that its first lease arrives at 0."""
    shift = workload.arrivals[0] if len(workload) else 0
    assert workload.specs is None and workload.starts is None, "only a queue can be moved"
    return replace(workload, arrivals=[at - shift for at in workload.arrivals])


def as_leases(workload: Workload) -> list[SimLease]:
    """Return the leases of a workload one by one."""
    cancels = workload.cancels or [None] * len(workload)
    return [
        SimLease(
            workload.ids[i], workload.arrivals[i], workload.spec(i), workload.runs[i], cancels[i]
        )
        for i in range(len(workload))
    ]


def as_workload(source: Workload, leases: list[SimLease]) -> Workload:
    """Return leases as a workload that keeps what `source` knows of its file."""
    made = Workload.of(source.name, leases)
    return replace(made, slot=source.slot, bad=source.bad, left_out=source.left_out)


def compact(workload: Workload) -> Workload:
    """Return the workload without specs when its columns say all that counts.

    That is so when all slots are alike and the leases queue or have a start; such workloads can be
    planned by counts.
    """
    specs = workload.specs
    if not specs or len({spec.amounts for spec in specs}) != 1:
        return workload
    labels = [spec.labels for spec in specs] if any(spec.labels for spec in specs) else None
    plain = replace(workload, specs=None, slot=specs[0].amounts, labels=labels)
    same = all(
        plain.spec(i) == replace(spec, project="trace", pool="sim") for i, spec in enumerate(specs)
    )
    return plain if same else workload


def _annotated(lease: SimLease, annotation: Element) -> SimLease:
    spec = lease.spec
    start, deadline = annotation.one("start"), annotation.one("deadline")
    by = None if deadline is None else parse_span(deadline, "time")
    if start is not None:
        spec = replace(spec, terms=parse_terms(start, by, lease.arrival))
    elif by is not None:
        spec = replace(spec, terms=_by(spec, lease.arrival + by))
    spec = with_software(spec, annotation.one("software"))
    labels = {**spec.labels, **parse_attributes(annotation, "extra")}
    return replace(lease, spec=replace(spec, labels=labels))


def _by(spec: LeaseSpec, deadline: Millis) -> Deadline:
    match spec.terms:
        case Advance(start=start):
            return Deadline(deadline, start)
        case Deadline(earliest_start=earliest):
            return Deadline(deadline, earliest)
        case _:
            return Deadline(deadline)
