"""What people and scripts get when a command fails: one sentence with a reason, and a code."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest

from tenure_cli.failures import guarded


def failing(error: BaseException):
    def run() -> None:
        raise error

    return run


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nosuch",), "No such command 'nosuch'; see `tenure --help`"),
        (("queue", "--limit", "x"), "see `tenure queue --help`"),
        (("run", "--cpu", "abc", "--", "true"), "'abc' is no quantity of cpu"),
        (("run", "--label", b"a\xff=b", "--", "true"), "'a\\udcff=b' is not in UTF-8"),
        (("lease", "wait", "x", "--timeout", "abc"), "'abc' is no duration"),
        (("lease", "update", "x", "--time", "abc"), "'abc' is no duration"),
        (("lease", "create", "--start", "+999999999h"), "lies beyond the years 1 to 9999"),
        (("lease", "logs", "x", "--rank", "99999999999"), "99999999999 is not in the range"),
        (("lease", "logs", "x", "--tail", "0"), "0 is not in the range"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_a_wrong_command_line_gets_one_sentence_with_its_reason(
    tmp_path, arguments: tuple[str | bytes, ...], said: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tenure_cli", *arguments],
        env={"TENURE_DATA": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert done.stderr.startswith("tenure: ")
    assert done.stderr.endswith(" [USAGE]\n")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (
            OSError(28, "No space left on device", "/x"),
            1,
            "tenure: No space left on device: /x [SYSTEM_ERROR]\n",
        ),
        (
            ValueError("odd"),
            1,
            "tenure: this is a bug of ours: ValueError: odd; TENURE_TRACEBACK=1 shows where [INTERNAL]\n",  # noqa: E501
        ),
        (click.UsageError("It is wrong."), 2, "tenure: It is wrong; see `tenure --help` [USAGE]\n"),
        (BrokenPipeError(32, "Broken pipe"), 0, ""),
        (KeyboardInterrupt(), 130, "interrupted\n"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_every_failure_is_a_sentence_and_a_code(
    capsys: pytest.CaptureFixture[str], error: BaseException, code: int, said: str
) -> None:
    assert guarded(failing(error)) == code
    assert capsys.readouterr().err == said


def test_a_bug_shows_where_it_is_to_those_who_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENURE_TRACEBACK", "1")
    with pytest.raises(ValueError, match="odd"):
        guarded(failing(ValueError("odd")))
