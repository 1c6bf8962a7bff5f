"""What is hidden in texts that are kept."""

from __future__ import annotations

import pytest

from tenure_core.secrets import HIDDEN, hide_in_command, hide_in_text, names_secret


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        (["train", "--epochs", "3"], ["train", "--epochs", "3"]),
        (["login", "--password", "x y", "-v"], ["login", "--password", HIDDEN, "-v"]),
        (["login", "--api-key=abc", "-v"], ["login", f"--api-key={HIDDEN}", "-v"]),
        (["PASSWORD=x go --token 'a b' on"], [f"PASSWORD={HIDDEN} go --token {HIDDEN} on"]),
        (["AWS_SECRET_ACCESS_KEY=x", "run"], [f"AWS_SECRET_ACCESS_KEY={HIDDEN}", "run"]),
        (["curl", "https://ann:pw@example.org/x"], ["curl", f"https://ann:{HIDDEN}@example.org/x"]),
        (["tenure", f"tnr_ann_{'a' * 64}"], ["tenure", f"tnr_ann_{HIDDEN}"]),
        (["capital", "passage"], ["capital", "passage"]),
    ],
)  # fmt: skip
def test_what_commands_give_to_names_of_secrets_is_hidden(
    command: list[str], shown: list[str]
) -> None:
    assert hide_in_command(command) == shown


def test_other_texts_stay_as_they_are() -> None:
    assert hide_in_text("pool a: 3 nodes") == "pool a: 3 nodes"
    assert [names_secret(name) for name in ("api_key", "key", "DB_PASSWORD")] == [True, False, True]
