"""The queries of dashboards and alerts, and what they ask of the metrics that exist."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tests.tidy.source_reasons import REPOSITORY, modules

CHART: Final = REPOSITORY / "helm" / "tenure"
RULES: Final = CHART / "rules" / "tenure.yaml"
DASHBOARDS: Final = tuple(sorted((CHART / "dashboards").glob("*.json")))

SUFFIXES: Final = {
    "Counter": ("_total",),
    "Gauge": ("",),
    "Histogram": ("_seconds_bucket", "_seconds_sum", "_seconds_count"),
}
BY_PROMETHEUS: Final = frozenset({"job", "service", "instance"})
"""What is added to each series where it is scraped."""

_SELECTOR = re.compile(r"\b(tenure_[a-z_]+|up)\b(?:\{([^}]*)\})?")
_MATCHER = re.compile(r'([a-z_]+)\s*(?:=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)"')
_GROUPED = re.compile(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)")


@dataclass(frozen=True)
class Query:
    """One query, and where it stands."""

    place: str
    text: str

    def selectors(self) -> Iterator[tuple[str, dict[str, str]]]:
        """Yield each metric with the labels and values that it is asked for."""
        for name, matchers in _SELECTOR.findall(self.text):
            yield name, dict(_MATCHER.findall(matchers))

    def grouped(self) -> set[str]:
        """Return the labels that results are grouped by."""
        return {
            label.strip()
            for labels in _GROUPED.findall(self.text)
            for label in labels.split(",")
            if label.strip()
        }


def alerts() -> dict[str, Query]:
    """Return the query of each alert by its name."""
    text = RULES.read_text(encoding="utf-8")
    found = re.findall(r"- alert: (\w+)\n\s+expr: (.+)\n", text)
    assert len(found) == text.count("- alert:"), "an alert has its query on the line below it"
    return {name: Query(f"alert {name}", query) for name, query in found}


def panels() -> list[Query]:
    """Return the queries of all dashboards' panels and variables."""
    queries = []
    for path in DASHBOARDS:
        board = json.loads(path.read_text(encoding="utf-8"))
        for panel in board["panels"]:
            queries += [
                Query(f"{path.name}: {panel['title']}", target["expr"])
                for target in panel["targets"]
            ]
        for each in board["templating"]["list"]:
            if each["type"] == "query":
                asked = re.fullmatch(r"label_values\((\w+), (\w+)\)", each["query"]["query"])
                assert asked is not None, each
                queries.append(
                    Query(f"{path.name}: ${each['name']}", f'{asked[1]}{{{asked[2]}="."}}')
                )
    return queries


def series_in_sources() -> dict[str, frozenset[str]]:
    """Return each series that a declaration in the sources makes, with its labels."""
    found = {"up": BY_PROMETHEUS}
    for _, tree in modules():
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            suffixes = SUFFIXES.get(node.func.id)
            if suffixes is None or not node.args or not isinstance(node.args[0], ast.Constant):
                continue
            [labels] = [each for each in node.args if isinstance(each, ast.Tuple)][:1]
            names = frozenset(ast.literal_eval(labels)) | BY_PROMETHEUS
            for suffix in suffixes:
                more = {"le"} if suffix.endswith("_bucket") else set()
                found[f"tenure_{node.args[0].value}{suffix}"] = names | more
    return found
