"""Reads rendered manifests the way the checks ask about them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Manifest = dict[str, Any]
SERVICES = ("admission", "slottable", "scheduler", "registry", "autoscaler")


def of_kind(case: dict[str, Any], *kinds: str) -> list[Manifest]:
    """Return the manifests of these kinds."""
    return [each for each in case["objects"] if each["kind"] in kinds]


def component(manifest: Manifest) -> str:
    """Return which part of Tenure a manifest is about."""
    return str(manifest["metadata"]["labels"]["app.kubernetes.io/component"])


def named(case: dict[str, Any], kind: str, part: str) -> Manifest:
    """Return the one manifest of a kind and component."""
    (found,) = [each for each in of_kind(case, kind) if component(each) == part]
    return found


def pods(case: dict[str, Any]) -> Iterator[tuple[str, Manifest]]:
    """Yield (component, pod spec) of everything that runs."""
    for each in of_kind(case, "Deployment", "DaemonSet", "StatefulSet"):
        yield component(each), each["spec"]["template"]["spec"]


def containers(pod: Manifest) -> list[Manifest]:
    """Return the containers of a pod, also those that run first."""
    return [*pod.get("initContainers", []), *pod["containers"]]


def environment(pod: Manifest) -> dict[str, str]:
    """Return what the only container finds in its environment; references as `<path>`."""
    (container,) = pod["containers"]
    return {
        each["name"]: each["value"]
        if "value" in each
        else f"<{each['valueFrom']['fieldRef']['fieldPath']}>"
        for each in container["env"]
    }


def secret_files(pod: Manifest, volume: str) -> dict[str, str]:
    """Return the files of a projected volume, each with `secret/key` that it comes from."""
    (found,) = [each for each in pod["volumes"] if each["name"] == volume]
    return {
        item["path"]: f"{source['secret']['name']}/{item['key']}"
        for source in found["projected"]["sources"]
        for item in source["secret"]["items"]
    }
