"""What must not stand in any file: paths of one machine, hosts of registries, things left to do."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache

from tests.tidy.source_reasons import REPOSITORY

MACHINE_PATH = re.compile(r"(?<![\w.])/(?:work|root|home)/\w")
REGISTRY_HOST = re.compile(
    r"pypi\.org|pythonhosted|--index-url|--extra-index|https?://[^\s/]*proxy"
)
LEFT_TO_DO = re.compile(r"\b(?:TODO|FIXME|XXX|HACK)\b")
TEXT = {".py", ".md", ".proto", ".toml", ".yaml", ".yml", ".sh", ".sql", ".txt", ".swf", ""}


NOT_OURS = {".git", ".venv", ".hypothesis", "node_modules", "demo-out", "dist"}


@cache
def files() -> tuple[tuple[str, str], ...]:
    """Return every text file under version control with its content."""
    return tuple(_texts(_names()))


def _names() -> list[str]:
    """Return the files that git knows; all there are where git cannot be asked."""
    git = shutil.which("git")
    if git is not None:
        listed = subprocess.run(
            [git, "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, text=True, check=False
        )
        if listed.returncode == 0:
            return listed.stdout.split("\0")
    return [
        str(path.relative_to(REPOSITORY))
        for path in sorted(REPOSITORY.rglob("*"))
        if not NOT_OURS & set(path.relative_to(REPOSITORY).parts)
        and not any(part.endswith("_cache") for part in path.parts)
    ]


def _texts(names: list[str]) -> Iterator[tuple[str, str]]:
    for name in names:
        path = REPOSITORY / name
        if name and path.is_file() and path.suffix in TEXT and name != "tests/tidy/test_text.py":
            yield name, path.read_text(encoding="utf-8", errors="replace")


def lines_with(pattern: re.Pattern[str], under: tuple[str, ...] = ("",)) -> list[str]:
    return [
        f"{name}: {line.strip()[:120]}"
        for name, text in files()
        if name.startswith(under)
        for line in text.splitlines()
        if pattern.search(line)
    ]


def test_no_path_of_one_machine() -> None:
    assert lines_with(MACHINE_PATH) == []


def test_no_host_of_a_package_registry() -> None:
    assert lines_with(REGISTRY_HOST) == []


def test_nothing_is_left_to_do_in_the_sources() -> None:
    """What is not done is said in a README or an issue, not in a comment that nobody reads."""
    assert lines_with(LEFT_TO_DO, ("libs/tenure_", "services/", "protos/")) == []


def test_the_patterns_find_what_they_are_for() -> None:
    assert MACHINE_PATH.search("see /" + "home/someone/x")
    assert REGISTRY_HOST.search("https://" + "pypi.org/simple")
    assert LEFT_TO_DO.search("# " + "TODO: later")
