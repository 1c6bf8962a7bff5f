"""A suite as `tenure up` runs it speaks mutual TLS: who gets through, and what goes on."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest
from tests.support.cli import Cli
from tests.support.every_call import misjudged
from tests.support.suite import running_suite
from tests.tidy.permissions import CONTRACTS, SERVED_BY

from tenure.admission.v1 import admission_pb2 as apb
from tenure.registry.v1 import registry_pb2 as rpb
from tenure.registry.v1.registry_pb2_grpc import RegistryServiceStub
from tenure_runtime.embedded.authority_plan import CertificateTerms
from tenure_runtime.rpc.client import Client, RetryPolicy, connect

pytestmark = [pytest.mark.timeout(180), pytest.mark.slow]


async def test_each_call_is_open_to_the_roles_of_the_table_and_to_no_other() -> None:
    async with running_suite(["ada"], agents=1) as running:

        async def judged(service: str) -> list[tuple[str, ...]]:
            def connected(key: str, shown: str) -> Client:
                return connect(
                    running.suite.state.address(SERVED_BY[service]),
                    api_key=running.suite.keys.read(key),
                    tls=running.suite.tls(shown),
                    retry=RetryPolicy(attempts=1),
                )

            return [(service, *each) for each in await misjudged(service, connected)]

        wrong = await asyncio.gather(*map(judged, CONTRACTS))

    assert [call for calls in wrong for call in calls] == []


async def test_a_key_made_by_a_call_needs_the_certificate_of_a_person(tmp_path: Path) -> None:
    """Ann gets a key, a certificate and the addresses, and nothing else of the suite's folder."""
    async with running_suite(agents=1) as running:
        operator = Cli(running.folder)
        settings = {"XDG_CONFIG_HOME": str(tmp_path), "TENURE_CONTEXT": "site"}
        ann = Cli(tmp_path / "no-suite", environment=settings)
        key, hers = tmp_path / "ann.key", tmp_path / "hers"

        def story() -> tuple[str, str, str, list[str]]:
            operator("key", "create", "ann", "--key-file", str(key))
            operator("certificate", "make", "ann", "--out", str(hers), "--days", "7")
            again = operator("certificate", "make", "ann", "--out", str(hers), code=None).stderr
            ann("context", "add", "site", str(hers))
            login = ann("login", "--key-file", str(key)).stdout
            ann.create(run="sleep 60")
            queue = json.loads(ann("lease", "list", "--output", "json").stdout)
            ann("pool", "list")
            stolen = running.folder / "tls" / "agent-1"
            files = (("certificate", f"{stolen}.crt"), ("private-key", f"{stolen}.key"))
            ann("context", "set", "site", *(f"--tls-{what}={file}" for what, file in files))
            refused = ann("lease", "list", code=None).stderr
            return again, login, refused, [each["owner"] for each in queue]

        again, login, refused, owners = await asyncio.to_thread(story)

    assert "ann.crt exists: nothing was written" in again
    assert login == "You are ann (member), in context site.\n"
    assert owners == ["ann"]
    assert "The key of ann came over a connection of agent agent-1." in refused


async def test_work_goes_on_while_all_certificates_and_authorities_are_renewed() -> None:
    """Certificates live for 6 s and authorities for 18 s; nothing restarts and no call fails."""
    terms = CertificateTerms(
        authority_ms=18_000, certificate_ms=6_000, overlap_ms=2_000, early_ms=1_000
    )
    trusted, shown = set(), set()
    async with running_suite(agents=2, certificates=terms) as running:
        pids = {each.name: each.pid for each in running.suite.processes.status()}
        folder, end = running.folder / "tls", time.monotonic() + 30
        async with running.connect() as connection:
            client, stub = await connection.admission()
            while time.monotonic() < end:
                trusted.add((folder / "authority.pem").read_bytes())
                shown.add((folder / "registry.crt").read_bytes())
                await client.call(stub.ListLeases, apb.ListLeasesRequest(), retry=False)
                async with running.client("registry") as fresh:
                    info = RegistryServiceStub(fresh.channel).GetServiceInfo
                    await fresh.call(info, rpb.GetServiceInfoRequest(), retry=False)
                await asyncio.sleep(0.1)

        assert {each.name: each.pid for each in running.suite.processes.status()} == pids
    assert len(trusted) >= 3
    assert len(shown) >= 5
