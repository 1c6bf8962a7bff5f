"""The services and the key are found where they are said to be, and in which order."""

from __future__ import annotations

from pathlib import Path

import pytest

from tenure.client.discovery import Discovery, default_folder
from tenure_cli.embedded.layout import SuiteState, write_state
from tenure_core.errors import NotFound, WrongState
from tenure_runtime.embedded.authority import files_in
from tenure_runtime.rpc.transport import TlsFiles

ELSEWHERE = {"TENURE_ADMISSION_ADDRESS": "there:1", "TENURE_API_KEY": "tnr_env_key"}


@pytest.fixture
def folder(tmp_path):
    """Return the folder of a suite, written as `tenure up` writes it."""
    write_state(tmp_path, SuiteState({"admission": 4711, "registry": 4712}, agents=2))
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "operator.key").write_text("tnr_operator_suite\n")
    return tmp_path


def test_the_suite_of_tenure_up_is_found_through_its_folder(folder):
    found = Discovery(environment={"TENURE_DATA": str(folder)})
    assert found.address("admission") == "127.0.0.1:4711"
    assert found.key() == "tnr_operator_suite"
    assert found.transport("admission") == files_in(folder / "tls", "operator")


def test_the_certificate_is_that_of_the_keys_owner(folder):
    found = Discovery(environment={"TENURE_DATA": str(folder), "TENURE_API_KEY": "tnr_ada.b_x"})
    assert found.transport("admission") == files_in(folder / "tls", "ada.b")


def test_a_suite_in_plain_text_is_spoken_to_in_plain_text(folder):
    write_state(folder, SuiteState({"admission": 4711}, agents=2, plaintext=True))
    assert Discovery(folder, environment={}).transport("admission") is None


def test_the_key_goes_to_another_machine_in_plain_text_only_if_that_is_asked_for(folder):
    found = Discovery(environment={"TENURE_DATA": str(folder), **ELSEWHERE})
    with pytest.raises(WrongState) as raised:
        found.transport("admission")
    assert raised.value.reason == "PLAINTEXT_REFUSED"
    for more in ({"TENURE_PLAINTEXT": "1"}, {"TENURE_ADMISSION_ADDRESS": "127.0.0.1:1"}):
        assert Discovery(environment={**ELSEWHERE, **more}).transport("admission") is None


def test_the_environment_wins_over_the_default_folder(folder):
    found = Discovery(environment={"TENURE_DATA": str(folder), **ELSEWHERE})
    assert found.address("admission") == "there:1"
    assert found.address("registry") == "127.0.0.1:4712"
    assert found.key() == "tnr_env_key"


def test_a_folder_that_is_given_wins_over_the_environment(folder):
    found = Discovery(folder, environment={**ELSEWHERE, "TENURE_TLS_AUTHORITY": "/ca"})
    assert found.address("admission") == "127.0.0.1:4711"
    assert found.key() == "tnr_operator_suite"
    assert found.transport("admission") == files_in(folder / "tls", "operator")


def test_arguments_win_over_everything(folder):
    tls = TlsFiles(authority=Path("/mine"))
    found = Discovery(folder, {"admission": "mine:2"}, "tnr_my_key", tls, ELSEWHERE)
    assert (found.address("admission"), found.key()) == ("mine:2", "tnr_my_key")
    assert found.transport("admission") is tls


def test_a_key_file_is_read(tmp_path):
    file = tmp_path / "ada.key"
    file.write_text("tnr_ada_key\n")
    assert Discovery(environment={"TENURE_KEY_FILE": str(file)}).key() == "tnr_ada_key"


def test_tls_files_come_from_the_environment():
    environment = {"TENURE_TLS_AUTHORITY": "/ca", "TENURE_TLS_CERTIFICATE": "/crt"}
    found = Discovery(environment={**environment, **ELSEWHERE})
    assert found.transport("admission") == TlsFiles(Path("/crt"), None, Path("/ca"))


def test_what_is_missing_is_said_with_a_way_out(tmp_path):
    found = Discovery(environment={"TENURE_DATA": str(tmp_path)})
    with pytest.raises(NotFound, match="TENURE_SCHEDULER_ADDRESS") as raised:
        found.address("scheduler")
    assert raised.value.reason == "SUITE_NOT_FOUND"
    with pytest.raises(NotFound, match="TENURE_API_KEY") as raised:
        found.key()
    assert raised.value.reason == "API_KEY_NOT_FOUND"


def test_a_key_is_not_shown():
    assert "secret" not in repr(Discovery(api_key="tnr_a_secret"))


def test_the_folder_is_the_one_of_the_suite(monkeypatch, tmp_path):
    from tenure_cli.embedded import layout

    for environment in ({"TENURE_DATA": str(tmp_path)}, {"XDG_DATA_HOME": str(tmp_path)}, {}):
        for name in ("TENURE_DATA", "XDG_DATA_HOME"):
            monkeypatch.delenv(name, raising=False)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        assert default_folder(environment) == layout.default_data_folder()
