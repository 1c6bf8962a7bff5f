"""The documents' commands do what they say: each block of shell is run, or says why it is not."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"(?:<!-- (?P<mark>[^\n]*?) -->\n)?```sh\n(?P<text>.*?)```", re.DOTALL)


DOCUMENTS = {
    "README.md": ("slot 1 of 2 on agent-", "on time", "led by scheduler-1", " is gone."),
    "docs/tutorial.md": (
        "I run on agent-",
        "my turn",
        "suspended",
        "Quota project-physics allows project physics cpu=1 at a time",
    ),
    "docs/guides/access.md": (
        "You are ann (member), in context lab.",
        "hello from Ann",
        "hers   ann    done",
        "[METHOD_FORBIDDEN]",
        "[API_KEY_INVALID]",
        "CreateLease  leases/hers  created",
    ),
    "docs/guides/notices.md": ("before an end  10m", "webhook        none"),
    "docs/guides/preemptible.md": ("step 12", "preempted  1", "requeue"),
    "docs/guides/machines.md": ("I run on machine-", "lesson on machine-", "removed"),
    "docs/guides/providers.md": (
        "ok  a token makes one machine, repeated and four times at once",
        "ok  machines of others stay as they are",
        "mine-1",
    ),
    "docs/guides/elastic-group.md": ("DRAINS_TOO_SLOWLY", "MASTER_LOST", "farm is gone."),
    "docs/guides/recover.md": ("swept", "is restored, as of", "scheduled"),
    "docs/guides/quotas.md": (
        "at once",
        "Quota project-chemistry allows",
        "allows project guests 5 cpu-hours a day",
        "would start now",
        "of 5 cpu-hours are charged until",
        "priority:10/drf:project",
        "is the sum over",
    ),
    "docs/guides/settings.md": ("TENURE_TOKEN_LIFETIME_S", "rlimit"),
    "docs/guides/series.md": ("class-20270202t0900", "granted"),
}
"""What is run in order on a suite of its own, and what that must have said."""


def blocks(document: str = "README.md") -> list[tuple[str, str]]:
    """Return the mark and the text of each shell block."""
    text = (REPOSITORY / document).read_text(encoding="utf-8")
    return [(found["mark"] or "", found["text"]) for found in BLOCK.finditer(text)]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_block_is_run_or_says_why_not(document: str) -> None:
    text = (REPOSITORY / document).read_text(encoding="utf-8")
    assert len(blocks(document)) == text.count("```sh\n") > 0
    for mark, block in blocks(document):
        assert re.fullmatch(r"tested: \w+|not run here: .{10,}", mark), block


def test_the_guide_to_elastic_groups_shows_the_example_as_it_is() -> None:
    example = (REPOSITORY / "examples" / "elastic" / "queue_app.py").read_text(encoding="utf-8")
    assert example in (REPOSITORY / "docs/guides/elastic-group.md").read_text(encoding="utf-8")


def test_every_guide_is_run() -> None:
    guides = {f"docs/guides/{path.name}" for path in (REPOSITORY / "docs" / "guides").glob("*.md")}
    assert guides <= set(DOCUMENTS)


def test_commands_that_are_not_run_exist() -> None:
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    for mark, text in blocks():
        if mark.startswith("not run"):
            for line in text.splitlines():
                program, target = line.split()
                assert program == "make"
                assert f"\n{target}:" in makefile, line


@pytest.mark.slow
@pytest.mark.postgres
@pytest.mark.timeout(400)
@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_documents_commands_work_as_they_stand(tmp_path: Path, document: str) -> None:
    """Wherever one fails, the document promises what is not so."""
    data = tmp_path / "data"
    environment = {
        **os.environ,
        "TENURE_DATA": str(data),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "COLUMNS": "200",
    }
    (tmp_path / "examples").symlink_to(REPOSITORY / "examples")
    texts = [text for mark, text in blocks(document) if mark.startswith("tested: ")]
    try:
        # One shell, as a reader has: what a block defines counts in the next.
        ran = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", "\n".join(texts)],
            env=environment,
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=380,
        )
    finally:
        subprocess.run(
            ["tenure", "down"], env=environment, capture_output=True, timeout=60, check=False
        )
    said = ran.stdout
    assert ran.returncode == 0, f"{said}\n{ran.stderr}"
    for expected in DOCUMENTS[document]:
        assert expected in said, said
    assert not data.exists()
