"""`tenure login` and `tenure context`: real processes against a real admission and issuer."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.contract.admission.harness import Admission, running
from tests.support.issuer import AUDIENCE, Issuer

from tenure.admission.v1 import identity_pb2 as pb
from tenure_admission.oidc import OidcSettings
from tenure_admission.store.memory import MemoryStore
from tenure_runtime.rpc.draining import Draining


@dataclass
class Shell:
    """Runs the command line as a user with a home of their own."""

    home: Path
    admission: Admission

    async def __call__(self, *arguments: str) -> tuple[int, str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tenure_cli", *arguments),
            env={**kept, "HOME": str(self.home), "XDG_CONFIG_HOME": str(self.home / "settings")},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await child.communicate()
        assert child.returncode is not None
        return child.returncode, out.decode(), err.decode()

    @property
    def file(self) -> Path:
        return self.home / "settings" / "tenure" / "contexts.json"


@pytest.fixture
def issuer() -> object:
    with Issuer() as playing:
        playing.add_key("one")
        yield playing


@pytest.fixture
async def shell(tmp_path: Path, issuer: Issuer) -> AsyncIterator[Shell]:
    draining = Draining()
    oidc = OidcSettings(issuer=issuer.url, audience=AUDIENCE, default_role="user")
    async with running(MemoryStore(draining), draining, oidc=oidc) as admission:
        started = Shell(tmp_path, admission)
        target = admission.served.target
        code, _, err = await started("context", "set", "site", "--address", f"admission={target}")
        assert code == 0, err
        yield started


async def test_signing_in_by_a_code_keeps_a_token_that_later_commands_show(
    shell: Shell, issuer: Issuer
) -> None:
    issuer.approvals = ["authorization_pending", "authorization_pending"]
    sign_in = ("login", "--issuer", issuer.url, "--client-id", AUDIENCE)

    code, out, err = await shell(*sign_in)
    assert (code, out) == (0, "You are oidc:ann (member), in context site.\n"), err
    assert "WDJB-MJHT" in err
    assert shell.file.stat().st_mode & 0o777 == 0o600
    code, out, err = await shell("lease", "list", "--output", "json")
    assert (code, json.loads(out)) == (0, []), err


async def test_a_refusal_at_the_issuer_is_said_and_nothing_is_kept(
    shell: Shell, issuer: Issuer
) -> None:
    issuer.approvals = ["access_denied"]
    before = shell.file.read_text()
    code, _, err = await shell("login", "--issuer", issuer.url, "--client-id", AUDIENCE)
    assert (code, "access_denied" in err, "SIGN_IN_REFUSED" in err) == (6, True, True)
    assert shell.file.read_text() == before


async def test_a_key_file_is_tried_and_kept_and_contexts_are_changed_by_name(shell: Shell) -> None:
    operator = await shell.admission.caller("operator")
    key = pb.ApiKey(caller="bob", roles=[pb.ROLE_MEMBER])
    made = await operator(pb.CreateApiKeyRequest(api_key=key))
    file, wrong = shell.home / "bob.key", shell.home / "wrong.key"
    file.write_text(made.secret + "\n")
    wrong.write_text(made.secret[:-1] + "g\n")

    refused = await shell("login", "--key-file", str(wrong))
    code, out, err = await shell("login", "--key-file", str(file))
    assert (refused[0], "API_KEY_INVALID" in refused[2]) == (6, True)
    assert (code, out) == (0, "You are bob (member), in context site.\n"), err

    assert (await shell("context", "set", "other", "--address", "admission=127.0.0.1:9"))[0] == 0
    assert (await shell("context", "use", "other"))[0] == 0
    listed = json.loads((await shell("context", "list", "--output", "json"))[1])
    assert [(row["name"], row["in_use"], row["credential"]) for row in listed] == [
        ("other", True, ""),
        ("site", False, "key"),
    ]
    code, _, err = await shell("context", "use", "nowhere")
    assert (code, "CONTEXT_NOT_FOUND" in err) == (3, True)


async def test_a_file_of_contexts_that_others_may_read_is_refused(shell: Shell) -> None:
    shell.file.chmod(0o644)
    code, _, err = await shell("context", "list")
    assert (code, "CONTEXTS_UNREADABLE" in err) == (4, True)
