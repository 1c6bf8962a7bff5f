"""What a Deployment tells a process is what the process's own settings take."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import pytest
from tests.helm.conftest import CHART
from tests.helm.manifests import SERVICES, environment, named, secret_files
from tests.helm.values_matrix import CASES, EVERYTHING

from tenure_admission.settings import AdmissionSettings
from tenure_agent.capacity import capacity
from tenure_agent.settings import AgentSettings
from tenure_autoscaler.settings import AutoscalerSettings
from tenure_registry.settings import RegistrySettings
from tenure_runtime.rpc.identity import Keyring, Role, write_private
from tenure_scheduler.settings import SchedulerSettings
from tenure_slottable.settings import SlottableSettings

SETTINGS = {
    "admission": AdmissionSettings,
    "autoscaler": AutoscalerSettings,
    "registry": RegistrySettings,
    "scheduler": SchedulerSettings,
    "slottable": SlottableSettings,
}
BY_THE_CHART = {
    *("listen", "instance", "keyring_file", "api_key", "ready_file", "database_dsn"),
    "secret_keys_file",
    *("log_level", "log_form", "otlp_endpoint", "metrics_listen"),
    *("tls_certificate", "tls_private_key", "tls_authority", "plaintext"),
    *(f"{service}_address" for service in SERVICES),
    *("etcd_endpoints", "etcd_user", "etcd_password"),
    *("etcd_ca", "etcd_certificate", "etcd_private_key"),
    # A password is no value of a chart: in a cluster mail goes through a relay that asks for none.
    *("smtp_user", "smtp_password"),
    # Spans go to a collector: what a pod keeps goes with it.
    "trace_store",
    # The provider `process` keeps machines beside the autoscaler: no pod can.
    *("machine_keys_dir", "machine_data_dir", "machine_tls_dir"),
    # Machines of elastic groups are told their program by their provider.
    "application",
    # Secrets of a program of one's own: in a cluster it stands beside the autoscaler, on loopback.
    *("external_provider_key", "external_provider_authority"),
}


def pod_of(case, part):
    kind = "DaemonSet" if part == "agent" else "Deployment"
    return named(case, kind, part)["spec"]["template"]["spec"]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("service", SERVICES)
def test_a_service_takes_its_environment_and_secret_files(
    rendered, case, service, monkeypatch, tmp_path
):
    pod = pod_of(rendered[case], service)
    given = environment(pod)
    assert given.keys() <= {f"TENURE_{name.upper()}" for name in SETTINGS[service].model_fields} | {
        "TENURE_SECRETS_DIR"
    }
    files = secret_files(pod, "secrets")
    for file, source in files.items():
        assert file.removeprefix("tenure_") in SETTINGS[service].model_fields
        (tmp_path / file).write_text(f"text of {source}")
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TENURE_SECRETS_DIR", str(tmp_path))

    settings = SETTINGS[service].load()

    assert settings.instance == "<metadata.name>"
    assert settings.database_dsn.startswith("text of ")
    assert settings.api_key == f"text of {files['tenure_api_key']}"
    assert settings.api_key.endswith(f"/{service}.key")
    assert settings.listen.partition("]")[2] or settings.listen.startswith("0.0.0.0:")
    for name in SETTINGS[service].model_fields:
        # Mail is sent, and machines are bought, where the cluster has a relay or a provider.
        others = ("smtp_address", "external_provider_address", f"{service}_address")
        if name.endswith("_address") and name not in others:
            assert getattr(settings, name) is not None, f"{name} is left out"
    if "etcd_endpoints" in SETTINGS[service].model_fields and case in ("trial", "everything"):
        assert settings.etcd_endpoints, "who elects is in tenure.elects of _names.tpl"
    if case == "everything":
        for name, value in EVERYTHING[service].get("settings", {}).items():
            assert getattr(settings, name) == value
    assert (settings.tls is None) == settings.plaintext == (case == "plaintext")


@pytest.mark.parametrize("case", [each for each in CASES if each != "no-agents"])
def test_an_agent_takes_its_environment(rendered, case, monkeypatch, tmp_path):
    given = environment(pod_of(rendered[case], "agent"))
    assert given.keys() <= {f"TENURE_{each.name.upper()}" for each in fields(AgentSettings)} | {
        "TENURE_KEY_FILE"
    }
    key = tmp_path / "agent.key"
    key.write_text("tnr_node-1_secret\n")

    settings = AgentSettings.load(
        {**given, "TENURE_AGENT_ID": "node-1", "TENURE_KEY_FILE": str(key)}
    )

    assert (settings.agent_id, settings.api_key) == ("node-1", "tnr_node-1_secret")
    assert settings.registry_address.endswith("-registry:7004")
    assert settings.on_stop == "stop"
    assert (settings.tls is None) == settings.plaintext == (case == "plaintext")
    assert capacity(settings.capacity)["cpu"] > 0


def test_what_is_offered_to_leases_fits_the_agents_limits(rendered):
    pod = pod_of(rendered["given-secrets"], "agent")
    offered = capacity(environment(pod)["TENURE_CAPACITY"])
    limits = pod["containers"][0]["resources"]["limits"]
    assert (limits["cpu"], limits["memory"]) == ("2", "2Gi")
    assert offered["cpu"] < 2_000
    assert offered["memory"] < 2 * 1024**3


@pytest.mark.parametrize("part", [*SERVICES, "agent"])
def test_the_schema_knows_exactly_the_settings_that_are_left_to_the_user(part):
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    known = schema["properties"][part]["properties"]["settings"]["properties"].keys()
    if part == "agent":
        real = {each.name for each in fields(AgentSettings)}
        chart = {"agent_id", "data_dir", "pool", "capacity", "attributes", "on_stop", "stop_wait_s"}
        assert known == real - chart - BY_THE_CHART
    else:
        real = SETTINGS[part].model_fields.keys() - BY_THE_CHART
        assert known == real, "a setting is new or gone: say so in values.schema.json"


def test_keys_that_helm_makes_are_keys_that_services_accept(rendered, tmp_path):
    keys, agent_keys = (
        each["stringData"]
        for each in rendered["trial"]["objects"]
        if each["kind"] == "Secret" and each["metadata"]["name"].endswith("-keys")
    )
    if "keyring.json" not in keys:
        keys, agent_keys = agent_keys, keys
    file = tmp_path / "keyring.json"
    write_private(file, keys["keyring.json"])
    keyring = Keyring.load(file)

    found = {
        name.removesuffix(".key"): keyring.identify(key).roles
        for name, key in {**keys, **agent_keys}.items()
        if name.endswith(".key")
    }

    assert found == {
        "operator": {Role.OPERATOR, Role.USER},
        **{service: {Role.SERVICE} for service in SERVICES},
        "ada": {Role.USER},
        "ben": {Role.USER},
        "node-1": {Role.AGENT},
        "node-2.example": {Role.AGENT},
    }
    assert len({*keys.values(), *agent_keys.values()}) == len(found) + 1  # and the keyring


def test_settings_classes_are_all_covered():
    services = Path(__file__).parents[2] / "services"
    with_settings = {each.parent.name for each in services.glob("*/settings.py")}
    assert with_settings == {f"tenure_{part}" for part in (*SERVICES, "agent")}
