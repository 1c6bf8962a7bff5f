"""Renders, lints and checks the chart: run by the interpreter that has Helm and the schemas.

Reads `{"chart": path, "kube_versions": [...], "cases": {name: values}}` from stdin and writes for
each case what was found, as JSON: `lint` (messages of level warning and above, strictly), `error`
(why it does not render), `objects` (parsed manifests), `notes`, `invalid` (schema violations). It
imports nothing of the project: Helm and the schemas weigh 350 MB and have an environment of their
own (`make helm-check`).
"""

import functools
import json
import sys

import helm_python
import kubernetes_validate
import yaml

RELEASE, NAMESPACE = "demo", "leases"


def look_at(path, values, kube_versions):
    """Return all that there is to know about the chart with these values."""
    report = helm_python.lint(path, values, strict=True, namespace=NAMESPACE)
    found = {
        "lint": [m for m in report["messages"] if m["severity"] >= 2] + report["errors"],
        "error": "",
        "objects": [],
        "notes": "",
        "invalid": [],
    }
    try:
        with helm_python.Chart.load(path) as chart:
            rendered = chart.render(values, name=RELEASE, namespace=NAMESPACE, is_install=True)
    except helm_python.HelmError as error:
        return {**found, "error": str(error)}
    for name, text in sorted(rendered.items()):
        if name.endswith("NOTES.txt"):
            found["notes"] = text
        elif not name.rpartition("/")[2].startswith("_"):
            found["objects"] += [each for each in yaml.safe_load_all(text) if each]
    for version in kube_versions:
        for each in found["objects"]:
            if each["apiVersion"].startswith(("cert-manager.io/", "monitoring.coreos.com/")):
                continue  # none of Kubernetes' own
            message = violation(json.dumps(each), version)
            if message:
                found["invalid"].append(
                    f"{version} {each['kind']} {each['metadata']['name']}: {message}"
                )
    return found


@functools.cache
def violation(manifest, version):
    """Return what a schema says against a manifest; several cases have many in common."""
    try:
        kubernetes_validate.validate(json.loads(manifest), version, strict=True)
    except kubernetes_validate.ValidationError as error:
        return error.message
    return ""


def main():
    asked = json.load(sys.stdin)
    answer = {
        name: look_at(asked["chart"], values, asked["kube_versions"])
        for name, values in asked["cases"].items()
    }
    json.dump({"helm": helm_python.helm_sdk_version(), "cases": answer}, sys.stdout)


if __name__ == "__main__":
    main()
