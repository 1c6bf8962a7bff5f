"""Packages that offer policies, installed into a folder as an installer does."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tenure_scheduler import policy_choices

LABORATORY = Path(__file__).parents[2] / "examples" / "policies"


def offer(monkeypatch: pytest.MonkeyPatch, target: Path, *sources: Path) -> None:
    """Install projects into a folder on the path until the test ends; nothing offered is kept."""
    for source in sources:
        _install(source, target)
    monkeypatch.syspath_prepend(str(target))
    for choices in vars(policy_choices).values():
        if isinstance(choices, policy_choices.Choices):
            monkeypatch.setattr(choices, "_made", dict(choices.ours))
            monkeypatch.setattr(choices, "_offered", None)


def _install(source: Path, target: Path) -> None:
    """Put the modules of a project there, with the entry points that its pyproject.toml names."""
    project = tomllib.loads((source / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for module in source.glob("*.py"):
        (target / module.name).write_bytes(module.read_bytes())
    info = target / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n",
        encoding="utf-8",
    )
    lines = []
    for group, points in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in points.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
