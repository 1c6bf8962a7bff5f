"""API keys, the keyring file and the table of methods."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tenure_core.errors import Forbidden, Unauthenticated
from tenure_runtime.rpc.identity import (
    Identity,
    Keyring,
    Permissions,
    Role,
    bearer_of,
    create_key,
    write_private,
)


def test_a_key_identifies_its_owner_with_its_roles() -> None:
    key, entry = create_key("scheduler-1", {Role.SERVICE})
    other, other_entry = create_key("ann.example", {Role.USER, Role.OPERATOR})
    keyring = Keyring([entry, other_entry])
    assert key.startswith("tnr_scheduler-1_")
    assert keyring.identify(key) == Identity("scheduler-1", frozenset({Role.SERVICE}))
    assert keyring.identify(other).roles == {Role.USER, Role.OPERATOR}


@pytest.mark.parametrize("name", ["", "Ann", "a_b", "-a", "a" * 64, "a b", "é"])
def test_names_that_would_make_a_key_ambiguous_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="lower-case letters"):
        create_key(name, {Role.USER})


def test_the_keyring_file_holds_hashes_and_is_private(tmp_path: Path) -> None:
    key, entry = create_key("ann", {Role.USER})
    path = tmp_path / "keyring.json"
    Keyring([entry]).store(path)
    secret = key.rpartition("_")[2]
    assert secret not in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    assert Keyring.load(path).identify(key) == Identity("ann", frozenset({Role.USER}))
    assert list(tmp_path.iterdir()) == [path]


def test_a_keyring_that_others_may_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "keyring.json"
    write_private(path, json.dumps({"keys": {}}))
    path.chmod(0o640)
    with pytest.raises(PermissionError, match="chmod 600"):
        Keyring.load(path)


@pytest.mark.parametrize("given", [None, "", "Bearer", "Bearer ", "Basic abc", "tnr_a_b"])
def test_a_call_without_a_bearer_key_is_refused(given: str | None) -> None:
    with pytest.raises(Unauthenticated) as caught:
        bearer_of(given)
    assert caught.value.reason == "API_KEY_MISSING"


def test_a_method_that_is_not_listed_is_closed_to_everyone() -> None:
    table = Permissions.of("tenure.a.v1.AService", {"Get": set(Role)}).also(
        Permissions.of("tenure.b.v1.BService", {"Set": {Role.OPERATOR}})
    )
    everyone = Identity("all", frozenset(Role))
    table.check(everyone, "/tenure.a.v1.AService/Get")
    table.check(Identity("op", frozenset({Role.OPERATOR})), "/tenure.b.v1.BService/Set")
    for identity, method in [
        (everyone, "/tenure.a.v1.AService/Set"),
        (everyone, "/tenure.c.v1.CService/Get"),
        (Identity("ann", frozenset({Role.USER})), "/tenure.b.v1.BService/Set"),
        (Identity("nobody", frozenset()), "/tenure.a.v1.AService/Get"),
    ]:
        with pytest.raises(Forbidden) as caught:
            table.check(identity, method)
        assert caught.value.reason == "METHOD_FORBIDDEN"
        assert caught.value.metadata == {"caller": identity.name, "method": method}
