"""Finds every span, instrument and log event in the sources by the literal names they are given."""

from __future__ import annotations

import ast
import re
from collections import defaultdict

from tests.tidy.source_reasons import modules

LEVELS = {"debug", "info", "warning", "error", "exception", "critical", "log", "say"}
SPANS = {"span", "span_in_each"}
INSTRUMENTS = {"Counter", "Gauge", "Histogram"}
EVENT = re.compile(r"[a-z_]+\.[a-z_]+")


def _found(kind: str) -> dict[str, set[str]]:
    names: dict[str, set[str]] = defaultdict(set)
    for path, tree in modules():
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call):
                continue
            called = node.func
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            if kind == "log" and name not in LEVELS:
                continue
            if kind == "span" and name not in SPANS:
                continue
            if kind == "instrument" and name not in INSTRUMENTS:
                continue
            for value in node.args[:2] if name == "log" else node.args[:1]:
                text = value.value if isinstance(value, ast.Constant) else None
                if isinstance(text, str) and (kind == "instrument" or EVENT.fullmatch(text)):
                    names[text].add(str(path))
    return names


def log_events() -> dict[str, set[str]]:
    """Return each log event with the modules that write it."""
    return _found("log")


def spans() -> dict[str, set[str]]:
    """Return each span with the modules that open it, apart from those named for a call."""
    return _found("span")


def instruments() -> dict[str, set[str]]:
    """Return each metric with the module that declares it."""
    return _found("instrument")
