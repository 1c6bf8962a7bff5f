"""What `make polyglot` says of languages whose tools are missing; the stories it tells itself."""

from __future__ import annotations

import pytest
from examples.polyglot import EXAMPLES, LANGUAGES, outcome_of

FOLDERS = {"c++": "cpp"}
OTHERS = {"policies", "elastic"}
"""Examples that are no clients."""


@pytest.fixture
def bare_machine(monkeypatch, tmp_path):
    """A machine without any program."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def test_every_folder_of_examples_has_its_language():
    folders = {path.name for path in EXAMPLES.iterdir() if path.is_dir()}
    languages = {FOLDERS.get(language.name, language.name) for language in LANGUAGES}
    assert folders - {"__pycache__"} == languages | OTHERS


@pytest.mark.parametrize("language", LANGUAGES[1:], ids=lambda language: language.name)
async def test_a_language_without_its_programs_is_not_run_and_they_are_named(
    bare_machine, language
):
    outcome = await outcome_of(language, {}, "a story")
    assert outcome == f"not run: {' and '.join(language.programs)} not found"


async def test_a_library_that_is_missing_is_named_when_the_programs_are_there(bare_machine):
    cpp = next(language for language in LANGUAGES if language.name == "c++")
    for program in cpp.programs:
        (bare_machine / program).symlink_to("/bin/false")
    assert await outcome_of(cpp, {}, "a story") == "not run: grpc++ and protobuf not found"
