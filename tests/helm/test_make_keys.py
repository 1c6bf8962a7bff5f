"""`helm/make_keys.py` makes keys that services accept, and adds to what is there."""

from __future__ import annotations

import runpy
import stat
from pathlib import Path

import pytest
from cryptography.x509 import DNSName, SubjectAlternativeName, UniformResourceIdentifier

from tenure_runtime.embedded.authority import read_certificate
from tenure_runtime.rpc.identity import Keyring, Role
from tenure_runtime.sealing import SecretKeys

NOW_MS = 1_900_000_000_000
DAY_MS = 86_400_000
TOOL = runpy.run_path(str(Path(__file__).parents[2] / "helm" / "make_keys.py"))


def keys_of(folder):
    return {
        file.name.removesuffix(".key"): file.read_text().strip() for file in folder.glob("*/*.key")
    }


def test_every_key_is_in_the_keyring_with_its_role(tmp_path):
    made = TOOL["make_keys"](tmp_path, ["node-1"], ["ada"])

    keyring = Keyring.load(tmp_path / "keys" / "keyring.json")
    keys = keys_of(tmp_path)
    assert set(made) == keys.keys()
    roles = {name: keyring.identify(key).roles for name, key in keys.items()}
    assert roles == {
        "operator": {Role.OPERATOR, Role.USER},
        **{name: {Role.SERVICE} for name in TOOL["SERVICES"]},
        "node-1": {Role.AGENT},
        "ada": {Role.USER},
    }
    assert (tmp_path / "agent-keys" / "node-1.key").exists()
    assert len(SecretKeys.load(tmp_path / "lease-secrets" / "secrets.json").keys) == 1
    for file in tmp_path.glob("*/*"):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_second_run_adds_nodes_and_changes_nothing_else(tmp_path):
    TOOL["make_keys"](tmp_path, ["node-1"], [])
    before = keys_of(tmp_path)

    made = TOOL["make_keys"](tmp_path, ["node-1", "node-2"], [])

    assert made == ["node-2"]
    after = keys_of(tmp_path)
    assert {name: after[name] for name in before} == before
    keyring = Keyring.load(tmp_path / "keys" / "keyring.json")
    assert keyring.identify(after["node-1"]).name == "node-1"


def test_a_name_cannot_be_two_things(tmp_path):
    with pytest.raises(ValueError, match="scheduler is already the name of service"):
        TOOL["make_keys"](tmp_path, ["scheduler"], [])


def test_everybody_gets_a_certificate_of_their_role_in_the_folder_of_its_secret(tmp_path):
    everybody = {"operator", *TOOL["SERVICES"], "node-1", "ada"}

    made = TOOL["make_certificates"](tmp_path, ["node-1"], ["ada"], "plane", NOW_MS)

    assert set(made) == everybody
    assert names_in(tmp_path / "agent-tls") == {"authority.pem", "node-1.crt", "node-1.key"}
    others = everybody - {"node-1"}
    both = {f"{name}.{ending}" for name in others for ending in ("crt", "key")}
    assert names_in(tmp_path / "tls") == {"authority.pem", *both}
    registry = read_certificate(tmp_path / "tls" / "registry.crt")
    found = registry.extensions.get_extension_for_class(SubjectAlternativeName).value
    assert found.get_values_for_type(UniformResourceIdentifier) == [
        "spiffe://tenure/service/registry"
    ]
    assert "plane-registry" in found.get_values_for_type(DNSName)
    for folder in ("tls", "agent-tls"):
        for file in (tmp_path / folder).iterdir():
            assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_certificates_are_made_anew_when_they_end_soon(tmp_path):
    TOOL["make_certificates"](tmp_path, [], [], "plane", NOW_MS)
    half, most = NOW_MS + 180 * DAY_MS, NOW_MS + 300 * DAY_MS

    assert TOOL["make_certificates"](tmp_path, [], ["ada"], "plane", half) == ["ada"]
    assert "registry" in TOOL["make_certificates"](tmp_path, [], ["ada"], "plane", most)


def names_in(folder):
    return {file.name for file in folder.iterdir()}
