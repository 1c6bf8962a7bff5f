"""People with keys of their own read what their work prints, and nothing of anyone else's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest
from tests.support.cli import Cli, short_folder, up

from tenure_runtime.rpc.identity import Keyring, Role, create_key

pytestmark = pytest.mark.timeout(180)


class People(NamedTuple):
    """The operator of a suite, and two users of it."""

    operator: Cli
    ann: Cli
    bob: Cli


@pytest.fixture(scope="module")
def people() -> Iterator[People]:
    """One suite whose keyring knew two users before it was started."""
    with short_folder("own") as folder:
        data = folder / "data"
        keys = {name: create_key(name, {Role.USER}) for name in ("ann", "bob")}
        (data / "keys").mkdir(mode=0o700, parents=True)
        Keyring(entry for _, entry in keys.values()).store(data / "keys" / "keyring.json")
        users = [Cli(data, environment={"TENURE_API_KEY": key}) for key, _ in keys.values()]
        with up(Cli(data), "--agents", "1", "--capacity", "cpu=2,memory=1Gi") as operator:
            yield People(operator, *users)


def ended(cli: Cli, run: str) -> str:
    lease = cli.create("--time", "30s", run=run)
    assert cli.wait(lease)["state"] == "STATE_DONE"
    return lease


def test_owners_read_their_own_output_and_operators_that_of_all(people: People) -> None:
    mine = ended(people.ann, "echo from ann")
    theirs = ended(people.bob, "echo from bob")

    refused = people.ann("lease", "logs", theirs, code=3)

    assert people.ann("lease", "logs", mine).stdout == "from ann\n"
    assert people.bob("lease", "logs", theirs).stdout == "from bob\n"
    assert people.operator("lease", "logs", theirs).stdout == "from bob\n"
    assert "ALLOCATION_NOT_FOUND" in refused.stderr
    assert refused.stdout == ""


def test_a_user_runs_a_command_and_sees_its_output_and_exit_code(people: People) -> None:
    said = people.ann("run", "-q", "--time", "30s", "--", "sh", "-c", "echo hello; exit 3", code=3)
    assert said.stdout == "hello\n"
