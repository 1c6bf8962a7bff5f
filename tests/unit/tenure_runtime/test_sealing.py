"""Secrets at rest and on their way: opened by the right key, about the right thing, unchanged."""

from __future__ import annotations

from pathlib import Path

import pytest

from tenure_core.secrets import Encrypted
from tenure_runtime.sealing import SealingKey, SecretKeys, Unreadable, seal_for


def test_what_is_encrypted_is_not_in_the_bytes_and_comes_back() -> None:
    keys = SecretKeys.made()
    kept = keys.encrypt(b"hunter2hunter2", "a1")
    assert b"hunter2" not in kept.content
    assert keys.decrypt(kept, "a1") == b"hunter2hunter2"
    assert keys.encrypt(b"hunter2hunter2", "a1") != kept, "equal secrets are not seen to be equal"


def test_after_a_rotation_the_new_key_encrypts_and_the_old_one_still_decrypts() -> None:
    old = SecretKeys.made()
    kept = old.encrypt(b"s", "a1")
    both = old.rotated()
    assert both.decrypt(kept, "a1") == b"s"
    newer = both.encrypt(b"s", "a1")
    assert newer.key_id == both.keys[-1][0] != kept.key_id
    assert both.digest("s") == old.digest("s") != SecretKeys.made().digest("s")
    with pytest.raises(Unreadable, match="no key"):
        SecretKeys(both.keys[1:]).decrypt(kept, "a1")


def test_what_was_changed_or_is_about_something_else_is_not_opened() -> None:
    keys = SecretKeys.made()
    kept = keys.encrypt(b"s", "a1")
    with pytest.raises(Unreadable):
        keys.decrypt(kept, "a2")
    with pytest.raises(Unreadable):
        keys.decrypt(Encrypted(kept.key_id, kept.content[:-1] + b"\0"), "a1")


def test_a_key_file_is_private_and_read_back(tmp_path: Path) -> None:
    file, keys = tmp_path / "secrets.json", SecretKeys.made().rotated()
    keys.store(file)
    assert file.stat().st_mode & 0o777 == 0o600
    assert SecretKeys.load(file) == keys
    file.chmod(0o640)
    with pytest.raises(ValueError, match="chmod 600"):
        SecretKeys.load(file)


@pytest.mark.parametrize(
    "text", ["", "{}", '{"keys": []}', '{"keys": [{"id": "a", "key": "eA=="}]}']
)
def test_a_damaged_key_file_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "secrets.json"
    file.write_text(text)
    file.chmod(0o600)
    with pytest.raises(ValueError, match="holds no keys"):
        SecretKeys.load(file)


def test_what_is_sealed_opens_for_its_agent_alone(tmp_path: Path) -> None:
    agent, other = SealingKey.open(tmp_path / "key"), SealingKey.made()
    sealed = seal_for(agent.public, b"hunter2hunter2", "a1")
    assert b"hunter2" not in sealed
    assert SealingKey.open(tmp_path / "key").unseal(sealed, "a1") == b"hunter2hunter2"
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    for key, content, about in [
        (other, sealed, "a1"),
        (agent, sealed, "a2"),
        (agent, sealed[:-1], "a1"),
        (agent, b"", "a1"),
    ]:
        with pytest.raises(Unreadable):
            key.unseal(content, about)


def test_nothing_is_sealed_for_what_is_no_key() -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        seal_for(b"short", b"s", "a1")
