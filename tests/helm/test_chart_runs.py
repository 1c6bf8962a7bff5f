"""What the chart starts really works together: every pod's processes, without Kubernetes.

Each pod becomes a folder: its Secrets are the rendered ones, its init containers' commands are run,
its container's command is started with the rendered environment. Only what Kubernetes would give is
replaced: the root of paths, the host in addresses, fields of the pod, and PostgreSQL.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from tests.helm.manifests import SERVICES, named, of_kind
from tests.support.suite import POSTGRES, until

from tenure.client import AsyncPlane, LeaseState, TlsFiles, Unavailable, connect_async
from tenure_cli.embedded.layout import free_ports
from tenure_runtime.embedded.postgres import EmbeddedPostgres

CASE = "trial-with-tls"
NODE = "node-1"


class Pod:
    """One pod of the chart as a folder and a process."""

    def __init__(self, root: Path, case, part: str, ports: dict[str, int], dsn: str) -> None:
        kind = "DaemonSet" if part == "agent" else "Deployment"
        self.spec = named(case, kind, part)["spec"]["template"]["spec"]
        self.part = part
        self.folder = root / part
        self._ports = ports
        self._secrets = {
            each["metadata"]["name"]: dict(each["stringData"]) for each in of_kind(case, "Secret")
        }
        for secret in self._secrets.values():
            if "dsn" in secret:
                secret["dsn"] = dsn
        self._secrets["tenure-tls"] = {
            file: (root / file).read_text() for file in ("tls.crt", "tls.key", "ca.crt")
        }

    def here(self, text: str) -> str:
        """Return a text of the manifest with paths and addresses as they are here."""
        for place in ("/run/tenure", "/var/lib/tenure", "/tmp"):
            if text.startswith(place) or f" {place}" in text or f'"{place}' in text:
                text = text.replace(place, f"{self.folder}{place}")
        for service, port in self._ports.items():
            if re.fullmatch(rf"demo-tenure-{service}:\d+", text):
                return f"127.0.0.1:{port}"
        return text

    def lay_out(self) -> None:
        """Make the folders and files that the volumes are."""
        mounts = {
            mount["name"]: Path(self.here(mount["mountPath"]))
            for container in [*self.spec["initContainers"], *self.spec["containers"]]
            for mount in container["volumeMounts"]
        }
        for volume in self.spec["volumes"]:
            target = mounts[volume["name"]]
            target.mkdir(parents=True, exist_ok=True)
            sources = [{"secret": volume["secret"]}] if "secret" in volume else []
            for source in volume.get("projected", {}).get("sources", sources):
                secret = source["secret"]
                content = self._secrets[secret.get("secretName") or secret["name"]]
                items = secret.get("items") or [{"key": key, "path": key} for key in content]
                for item in items:
                    (target / item["path"]).write_text(content[item["key"]])

    def environment(self, container) -> dict[str, str]:
        """Return what a container finds in its environment."""
        facts = {"spec.nodeName": NODE, "metadata.name": f"{self.part}-0"}
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        found = {"PATH": path, "HOME": str(self.folder)}
        for each in container.get("env", []):
            value = each.get("value")
            if value is None:
                value = facts[each["valueFrom"]["fieldRef"]["fieldPath"]]
            found[each["name"]] = self.here(value)
        if "TENURE_LISTEN" in found:
            found["TENURE_LISTEN"] = f"127.0.0.1:{self._ports[self.part]}"
        return found

    def initialize(self) -> None:
        """Run the init containers."""
        for container in self.spec["initContainers"]:
            command = [self.here(word) for word in container["command"]]
            subprocess.run(command, env=self.environment(container), check=True, timeout=20)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the container for the length of a block."""
        (container,) = self.spec["containers"]
        # The image's entry point is python.
        words = container.get("command") or ["python", *container["args"]]
        log = self.folder / "log"
        with log.open("wb") as target:
            process = await asyncio.create_subprocess_exec(
                *words, env=self.environment(container), stdout=target, stderr=target
            )
            try:
                yield
            except BaseException:
                print(f"{self.part}: {log.read_text()[-3000:]}", file=sys.stderr)
                raise
            finally:
                if process.returncode is None:
                    process.terminate()
                async with asyncio.timeout(30):
                    code = await process.wait()
        assert code == 0, f"{self.part} ended with {code}: {log.read_text()[-2000:]}"


def make_certificates(root: Path) -> None:
    """Make what cert-manager would: tls.crt, tls.key and ca.crt, for the name that is used here."""
    if shutil.which("openssl") is None:
        pytest.skip("needs the openssl program")

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=root, check=True, capture_output=True)

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    self_signed = ("-out", "ca.crt", "-days", "2", "-subj", "/CN=ca")
    openssl("req", "-x509", *key, "-keyout", "ca.key", *self_signed)
    (root / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    openssl("req", *key, "-keyout", "tls.key", "-out", "tls.csr", "-subj", "/CN=tenure")
    signed = ("-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2")
    openssl("x509", "-req", "-in", "tls.csr", *signed, "-extfile", "names", "-out", "tls.crt")


@pytest.fixture
def root():
    """Return a folder directly below /tmp: the paths of sockets are short."""
    folder = Path(tempfile.mkdtemp(prefix="tenure-chart-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


async def serves(plane: AsyncPlane) -> bool:
    """Say whether admission answers yet."""
    try:
        await plane.leases(limit=1)
    except Unavailable:
        return False
    return True


@pytest.mark.timeout(300)
async def test_the_pods_of_a_trial_with_mutual_tls_run_a_lease(rendered, root):
    case = rendered[CASE]
    make_certificates(root)
    ports = free_ports(SERVICES)
    keys = {}
    for secret in of_kind(case, "Secret"):
        keys |= secret["stringData"]
    tls = TlsFiles(root / "tls.crt", root / "tls.key", root / "ca.crt")
    addresses = {service: f"127.0.0.1:{port}" for service, port in ports.items()}
    postgres = EmbeddedPostgres(root / "postgres", settings=dict(POSTGRES))
    await postgres.start()
    try:
        dsn = await postgres.ensure_database("tenure")
        async with AsyncExitStack() as running:
            for part in (*SERVICES, "agent"):
                pod = Pod(root, case, part, ports, dsn)
                pod.lay_out()
                pod.initialize()
                await running.enter_async_context(pod.running())
            plane = await running.enter_async_context(
                connect_async(addresses=addresses, api_key=keys["ada.key"], tls=tls, timeout_s=45)
            )
            await until(lambda: serves(plane), 60, "admission serves")
            command = ["python", "-c", "print('in a pod')"]
            lease = await plane.submit(command=command, cpu="0.5", duration="1m")
            info = await lease.result(within_s=40)
            assert (info.state, info.owner, info.nodes) == (LeaseState.DONE, "ada", (NODE,))

            operator = await running.enter_async_context(
                connect_async(addresses=addresses, api_key=keys["operator.key"], tls=tls)
            )
            output = (await operator.lease(lease.id)).output()
            assert b"".join([part async for part in output]) == b"in a pod\n"

            # Nobody comes in without a certificate.
            async with connect_async(
                addresses=addresses, api_key=keys["operator.key"], timeout_s=1
            ) as stranger:
                with pytest.raises(Unavailable):
                    await stranger.leases(limit=1)
    finally:
        await postgres.destroy()
