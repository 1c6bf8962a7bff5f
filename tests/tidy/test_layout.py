"""The house: rooms of a service, what the core may import, names that say nothing, sizes."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest
from tests.tidy.source_reasons import REPOSITORY, modules

SERVICES = ("admission", "slottable", "scheduler", "registry", "autoscaler")
ROOMS = (
    "README.md",
    "__main__.py",
    "app.py",
    "clients.py",
    "convert.py",
    "migrations",
    "ports.py",
    "servicer.py",
    "settings.py",
    "store",
    "usecases.py",
    "validation.py",
)
NOT_NEEDED = {
    # slottable and the registry call nobody.
    ("slottable", "clients.py"),
    ("registry", "clients.py"),
}
MAIN_LINES_MAX = 40
FORBIDDEN_IN_CORE = {
    *("asyncio", "asyncpg", "google", "grpc", "logging", "opentelemetry", "os", "pathlib"),
    *("random", "socket", "structlog", "subprocess", "tenure", "tenure_runtime", "tenure_sim"),
    *("threading", "time"),
}
SAYS_NOTHING = frozenset({"utils", "util", "helpers", "helper", "common", "manager", "misc"})


@pytest.mark.parametrize("service", SERVICES)
def test_each_service_has_the_same_rooms(service: str) -> None:
    """Who knows one service finds their way in all of them."""
    folder = REPOSITORY / "services" / f"tenure_{service}"
    missing = [
        room
        for room in ROOMS
        if (service, room) not in NOT_NEEDED
        and not (folder / room).exists()
        and not (folder / room.removesuffix(".py")).is_dir()
    ]
    assert missing == []
    assert (folder / "store" / "postgres.py").exists()
    assert (folder / "store" / "memory.py").exists() or service == "scheduler"
    assert list((folder / "migrations").glob("0001_*.sql"))


@pytest.mark.parametrize("service", [*SERVICES, "agent"])
def test_a_main_module_only_starts(service: str) -> None:
    text = (REPOSITORY / "services" / f"tenure_{service}" / "__main__.py").read_text()
    assert len(text.splitlines()) <= MAIN_LINES_MAX


def imports_of(tree: ast.Module) -> Iterator[str]:
    """Yield the top-level packages that a module imports anywhere in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def test_the_core_imports_nothing_of_the_outside() -> None:
    wrong = {
        str(path): sorted(set(imports_of(tree)) & FORBIDDEN_IN_CORE)
        for path, tree in modules()
        if path.parts[1] == "tenure_core" and set(imports_of(tree)) & FORBIDDEN_IN_CORE
    }
    assert wrong == {}


def test_services_do_not_import_one_another() -> None:
    names = {f"tenure_{service}" for service in (*SERVICES, "agent")}
    wrong = {
        str(path): sorted(set(imports_of(tree)) & (names - {path.parts[1]}))
        for path, tree in modules()
        if path.parts[1] in names and set(imports_of(tree)) & (names - {path.parts[1]})
    }
    assert wrong == {}


def test_no_module_has_a_name_that_says_nothing() -> None:
    assert [str(p) for p, _ in modules() if SAYS_NOTHING & set(p.stem.split("_"))] == []


def test_every_module_says_what_it_decides() -> None:
    assert [str(p) for p, tree in modules() if not (ast.get_docstring(tree) or "").strip()] == []
