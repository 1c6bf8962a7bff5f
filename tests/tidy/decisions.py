"""The list of decisions, as docs/adr/README.md shows it. Run me to write it anew."""

from __future__ import annotations

import re

from tests.tidy.source_reasons import REPOSITORY

FOLDER = REPOSITORY / "docs" / "adr"
INDEX = FOLDER / "README.md"
HEAD = """# Decisions

Why it is so: each with its context and what else was possible. One is never rewritten; a later one
may replace it.

"""


def markdown() -> str:
    """Return the page: every decision by its number and its sentence."""
    lines = []
    for path in sorted(FOLDER.glob("0*.md")):
        title = path.read_text(encoding="utf-8").partition("\n")[0]
        number = int(path.name[:4])
        if number:
            said = re.sub(r"^# (?:ADR )?\d+[.:]? *", "", title)
            lines.append(f"* {number}: [{said}]({path.name})")
    return HEAD + "\n".join(lines) + "\n"


if __name__ == "__main__":
    INDEX.write_text(markdown(), encoding="utf-8")
