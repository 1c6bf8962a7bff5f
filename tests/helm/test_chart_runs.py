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

from tenure.client import AsyncPlane, Forbidden, LeaseState, Unavailable, connect_async
from tenure_cli.embedded.layout import free_ports
from tenure_runtime.embedded.authority import files_in
from tenure_runtime.embedded.postgres import EmbeddedPostgres
from tenure_runtime.rpc.identity import write_private

CASE = "trial-run"
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
            mode = (volume.get("secret") or volume.get("projected") or {}).get("defaultMode")
            for source in volume.get("projected", {}).get("sources", sources):
                secret = source["secret"]
                content = self._secrets[secret.get("secretName") or secret["name"]]
                items = secret.get("items") or [{"key": key, "path": key} for key in content]
                for item in items:
                    file = target / item["path"]
                    file.write_text(content[item["key"]])
                    file.chmod(mode)

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
            if container.get("restartPolicy") == "Always":
                continue  # runs beside the others, to renew what is there already
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
    ports = free_ports(SERVICES)
    secrets = {each["metadata"]["name"]: each["stringData"] for each in of_kind(case, "Secret")}
    keys = {name: secrets["demo-tenure-keys"][f"{name}.key"] for name in ("ada", "operator")}
    for file, text in secrets["demo-tenure-tls"].items():
        write_private(root / file, text)
    callers = {name: files_in(root, name) for name in keys}
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
                connect_async(
                    addresses=addresses, api_key=keys["ada"], tls=callers["ada"], timeout_s=45
                )
            )
            await until(lambda: serves(plane), 60, "admission serves")
            command = ["python", "-c", "print('in a pod')"]
            lease = await plane.submit(command=command, cpu="0.5", duration="1m")
            info = await lease.result(within_s=40)
            assert (info.state, info.owner, info.nodes) == (LeaseState.DONE, "ada", (NODE,))

            operator = await running.enter_async_context(
                connect_async(
                    addresses=addresses, api_key=keys["operator"], tls=callers["operator"]
                )
            )
            output = (await operator.lease(lease.id)).output()
            assert b"".join([part async for part in output]) == b"in a pod\n"

            # Nobody comes in with a key alone, or with a certificate of somebody else.
            with pytest.raises(Forbidden, match="connection of user ada"):
                async with connect_async(
                    addresses=addresses, api_key=keys["operator"], tls=callers["ada"]
                ) as thief:
                    await thief.leases(limit=1)
            async with connect_async(
                addresses=addresses, api_key=keys["operator"], timeout_s=1
            ) as stranger:
                with pytest.raises(Unavailable):
                    await stranger.leases(limit=1)
    finally:
        await postgres.destroy()
