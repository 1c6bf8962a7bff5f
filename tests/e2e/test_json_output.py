"""Programs read what people do: every command answers in JSON."""

from __future__ import annotations

import json

import pytest
from tests.support.cli import Cli, short_folder

pytestmark = pytest.mark.timeout(240)


def lines(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def test_every_command_that_shows_something_answers_in_json() -> None:
    with short_folder("json") as folder:
        cli = Cli(folder / "data")
        up = json.loads(cli("up", "--detach", "--agents", "1", "-o", "json").stdout)
        ran = lines(cli("run", "-o", "json", "--", "sh", "-c", "echo hi; exit 3", code=3).stdout)
        lease = ran[0]["lease"]["name"].removeprefix("leases/")  # type: ignore[index,union-attr]
        logs = lines(cli("lease", "logs", lease, "-o", "json").stdout)
        answers = {
            " ".join(words): json.loads(cli(*words, "-o", "json").stdout)
            for words in (
                ("lease", "get", lease),
                ("lease", "list", "--all"),
                ("lease", "explain", lease),
                ("queue",),
                ("availability",),
                ("agent", "list"),
                ("pool", "list"),
                ("pool", "policy", "list"),
                ("machine", "list"),
                ("machine", "decisions"),
                ("status",),
            )
        }
        down = json.loads(cli("down", "-o", "json").stdout)
        reset = json.loads(cli("reset", "--yes", "-o", "json").stdout)

    assert (up["agents"], up["data"]) == (1, str(folder / "data"))
    assert [part.get("text") for part in ran if "text" in part] == ["hi\n"]
    assert ran[-1]["lease"]["exit_code"] == 3  # type: ignore[index]
    assert logs == [{"rank": 0, "offset": 0, "text": "hi\n"}]
    assert answers[f"lease get {lease}"]["state"] == "STATE_FAILED"
    assert [one["name"] for one in answers["lease list --all"]] == [f"leases/{lease}"]
    assert [service["state"] for service in answers["status"]["services"]] == ["serving"] * 5
    assert down == {"data": str(folder / "data"), "stopped": True}
    assert reset == {"data": str(folder / "data"), "removed": True}
