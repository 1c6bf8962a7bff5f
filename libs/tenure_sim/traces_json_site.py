"""Sites as JSON: nodes in groups that are alike, numbered over all groups."""

from __future__ import annotations

from typing import Any

from tenure_core.errors import Invalid, Violation
from tenure_core.planning.snapshot import NodeView
from tenure_sim.site import Site
from tenure_sim.traces_json_fields import Fault, amounts_of, text_of, whole, words_of


def site_of_json(value: object) -> Site:
    """Return the site that a JSON value describes. Raises Invalid."""
    try:
        return site_of(value)
    except Fault as fault:
        raise Invalid([Violation("site", "BAD_SITE", str(fault))], "BAD_SITE") from None


def site_as_json(site: Site) -> dict[str, Any]:
    """Return a site as JSON can hold it; nodes one after the other that are alike become one."""
    nodes: list[dict[str, Any]] = []
    for node in site.nodes:
        entry: dict[str, Any] = {"count": 1, "amounts": dict(node.capacity_at(0))}
        if node.attributes:
            entry["attributes"] = dict(node.attributes)
        if nodes and {**nodes[-1], "count": 1} == entry:
            nodes[-1]["count"] += 1
        else:
            nodes.append(entry)
    return {"nodes": nodes, "freed_by_suspending": sorted(site.freed_by_suspending)}


def site_of(value: object) -> Site:
    """Return the site that a value describes. Raises Fault."""
    listed = value.get("nodes") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(listed, list) or not listed:
        raise Fault('a site is {"nodes": [{"count": 4, "amounts": {"cpu": "8"}}]}')
    nodes: list[NodeView] = []
    total = 0
    for entry in listed:
        if not isinstance(entry, dict):
            raise Fault("each entry of a site's nodes is an object")
        total += whole(entry, "count", 1, least=1)
    if total > 1_000_000:
        raise Fault(f"a site has at most 1,000,000 nodes, not {total}")
    for entry in listed:
        amounts, attributes = amounts_of(entry.get("amounts")), words_of(entry, "attributes")
        stem = text_of(entry, "name", "node")
        for _ in range(whole(entry, "count", 1, least=1)):
            name = f"{stem}-{len(nodes) + 1:0{len(str(total))}}"
            nodes.append(NodeView(name, ((0, amounts),), attributes))
    freed = value.get("freed_by_suspending", ["cpu"])
    if not isinstance(freed, list) or not all(isinstance(kind, str) for kind in freed):
        raise Fault("freed_by_suspending is a list of kinds of resources")
    return Site(tuple(nodes), frozenset(freed))
