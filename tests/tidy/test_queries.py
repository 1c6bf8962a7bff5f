"""Dashboards and alerts ask for metrics and labels that exist; each alert has its page."""

from __future__ import annotations

import json
import re

import pytest
from tests.tidy import queries
from tests.tidy.source_reasons import REPOSITORY

from tenure_admission.store.fullness import SHARES
from tenure_core.agents.states import AgentState
from tenure_core.leases.states import LeaseState
from tenure_scheduler.observing import UNPLANNED

RUNBOOK = REPOSITORY / "docs" / "runbook.md"
SERIES = queries.series_in_sources()
QUERIES = [*queries.alerts().values(), *queries.panels()]

VALUES = {
    "state": {
        *(state.value for state in AgentState),
        *(state.value for state in LeaseState),
        *("RUNNING", "used", "idle"),
    },
    "code": {"OK", "INTERNAL", "UNAVAILABLE"},
    "outcome": {"ok", "failed"},
    "reason": {UNPLANNED},
    "step": {"whole", "plan", "charge", "commit", "enact", "enact_again", "change"},
    "used": {f"{share}%" for share in SHARES},
    "job": {"tenure"},
}
"""The values that queries may ask for by name."""


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.place)
def test_a_query_asks_for_what_exists(query: queries.Query) -> None:
    known: set[str] = set()
    asked = list(query.selectors())
    assert asked, query.text
    for name, matchers in asked:
        assert name in SERIES, f"{name} is declared nowhere"
        assert matchers.keys() <= SERIES[name], f"{name} has no {matchers.keys() - SERIES[name]}"
        known |= SERIES[name]
        for label, value in matchers.items():
            if re.fullmatch(r"[\w%]+", value):
                assert value in VALUES[label], f"{label} is never {value}"
    assert query.grouped() <= known


def test_every_metric_is_on_a_dashboard() -> None:
    """One that nobody would look at is none that we should keep."""
    shown = {name for query in queries.panels() for name, _ in query.selectors()}
    stems = {re.sub(r"_(total|seconds_(bucket|sum|count))$", "", name) for name in shown}
    declared = {re.sub(r"_(total|seconds_(bucket|sum|count))$", "", name) for name in SERIES}
    assert declared - stems == {"up"}


def test_panels_have_names_and_places_of_their_own() -> None:
    for path in queries.DASHBOARDS:
        found = json.loads(path.read_text(encoding="utf-8"))["panels"]
        for fact in ("id", "title"):
            assert len({panel[fact] for panel in found}) == len(found), path
        places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in found}
        assert len(places) == len(found), path


def test_each_alert_has_its_section_in_the_runbook_and_no_section_lacks_its_alert() -> None:
    text = RUNBOOK.read_text(encoding="utf-8")
    assert re.findall(r"^## (Tenure\w+)$", text, re.MULTILINE) == list(queries.alerts())
    for section in text.split("\n## ")[1:]:
        title = section.partition("\n")[0]
        if title.startswith("Tenure"):
            parts = re.findall(r"^\*\*(\w+)\.\*\*", section, re.MULTILINE)
            assert parts == ["Means", "Do", "Tried"], title


def test_each_alert_is_made_to_happen() -> None:
    tried = (REPOSITORY / "tests" / "e2e" / "test_alerts.py").read_text(encoding="utf-8")
    assert [name for name in queries.alerts() if f'"{name}"' not in tried] == []


def test_a_query_that_asks_for_what_is_not_there_is_found() -> None:
    wrong = queries.Query("x", 'sum by (owner) (rate(tenure_gone_total{verb="START"}[5m]))')
    [(name, matchers)] = wrong.selectors()
    assert (name, matchers, wrong.grouped()) == ("tenure_gone_total", {"verb": "START"}, {"owner"})
    assert name not in SERIES
