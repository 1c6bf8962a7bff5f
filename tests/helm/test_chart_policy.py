"""What no pod of the chart may be, and who may talk to whom."""

from __future__ import annotations

import re
from typing import Any

import pytest
from tests.helm.manifests import (
    SERVICES,
    component,
    containers,
    environment,
    named,
    of_kind,
    pods,
)
from tests.helm.values_matrix import CASES

from tenure.admission.v1 import admission_pb2
from tenure.autoscaler.v1 import autoscaler_pb2
from tenure.registry.v1 import registry_pb2
from tenure.scheduler.v1 import scheduler_pb2
from tenure.slottable.v1 import slottable_pb2

CONTRACTS = {
    "admission": admission_pb2,
    "autoscaler": autoscaler_pb2,
    "registry": registry_pb2,
    "scheduler": scheduler_pb2,
    "slottable": slottable_pb2,
}
HEALTH = {
    part: service.full_name
    for part, contract in CONTRACTS.items()
    for service in contract.DESCRIPTOR.services_by_name.values()
}
PORTS = {
    "admission": 7001,
    "slottable": 7002,
    "scheduler": 7003,
    "registry": 7004,
    "autoscaler": 7005,
}

pytestmark = pytest.mark.parametrize("case", CASES)


def test_nothing_runs_as_root_or_could_become_it(rendered, case):
    for part, pod in pods(rendered[case]):
        security = pod["securityContext"]
        assert security["runAsNonRoot"] is True, part
        assert security["runAsUser"] > 0 and security["runAsGroup"] > 0, part
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}, part
        assert not {"hostPID", "hostNetwork", "hostIPC"} & pod.keys(), part
        for each in containers(pod):
            assert each["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "privileged": False,
                "capabilities": {"drop": ["ALL"]},
            }, (part, each["name"])


def test_every_container_has_requests_and_limits(rendered, case):
    for part, pod in pods(rendered[case]):
        for each in containers(pod):
            for bound in ("requests", "limits"):
                assert {"cpu", "memory"} <= each["resources"][bound].keys(), (part, each["name"])


def test_every_image_is_named_by_a_fixed_tag_or_digest(rendered, case):
    for part, pod in pods(rendered[case]):
        for each in containers(pod):
            assert re.search(r"(:(?!latest$)[\w.-]+|@sha256:[0-9a-f]{64})$", each["image"]), part


def test_no_pod_gets_a_token_or_the_variables_of_services(rendered, case):
    for part, pod in pods(rendered[case]):
        assert pod["automountServiceAccountToken"] is False, part
        assert pod["enableServiceLinks"] is False, part
    for account in of_kind(rendered[case], "ServiceAccount"):
        assert account["automountServiceAccountToken"] is False
    assert not of_kind(rendered[case], "Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding")


def test_no_secret_is_in_the_environment_or_readable_by_others(rendered, case):
    for part, pod in pods(rendered[case]):
        for each in containers(pod):
            for variable in each.get("env", []):
                assert "secretKeyRef" not in variable.get("valueFrom", {}), (part, variable)
                assert "tnr_" not in variable.get("value", "") and "://tenure:" not in str(variable)
        for volume in pod.get("volumes", []):
            kind = volume.get("secret") or volume.get("projected")
            if kind:
                # The pod's group reads them; the keyring is copied to a file of mode 0600.
                assert kind["defaultMode"] == 0o440, (part, volume["name"])


def test_the_keyring_and_the_agents_key_become_private_files(rendered, case):
    for part, pod in pods(rendered[case]):
        if part in SERVICES:
            init = pod["initContainers"][0]
            given, target = init["command"][-2:]
            assert init["command"][:3] == ["install", "-m", "0600"]
            assert (given, target) == (
                "/run/tenure-given/keyring.json",
                environment(pod)["TENURE_KEYRING_FILE"],
            )
        elif part == "agent":
            init = pod["initContainers"][0]
            target = environment(pod)["TENURE_KEY_FILE"]
            assert f'install -m 0600 "$given" {target}' in init["command"][-1]
            # Those of the other nodes stay behind, where the agent and its work do not look.
            (main,) = pod["containers"]
            mounted = {mount["name"] for mount in main["volumeMounts"]}
            assert not {"keys", "certificates"} & mounted


def test_the_agents_certificate_is_taken_again_when_it_is_renewed(rendered, case):
    for _, pod in [each for each in pods(rendered[case]) if each[0] == "agent"]:
        always = [each for each in pod["initContainers"] if each.get("restartPolicy") == "Always"]
        assert [each["name"] for each in always] == ["certificates"] * (case != "plaintext")
        for each in always:
            assert {"run", "certificates"} == {mount["name"] for mount in each["volumeMounts"]}
            assert "take_all" in each["command"][-1]
            assert environment(pod)["TENURE_TLS_PRIVATE_KEY"] == "/run/tenure/tls.key"


def test_services_show_a_certificate_of_their_own(rendered, case):
    if case == "plaintext":
        return
    for part, pod in pods(rendered[case]):
        if part in SERVICES:
            (tls,) = [each["secret"] for each in pod["volumes"] if each["name"] == "tls"]
            items = {item["path"]: item["key"] for item in tls.get("items", [])}
            if case == "everything":
                (made,) = [
                    each["spec"]
                    for each in of_kind(rendered[case], "Certificate")
                    if each["spec"]["secretName"] == tls["secretName"]
                ]
                assert made["uris"] == [f"spiffe://tenure/service/{part}"]
            else:
                own = {"tls.crt": f"{part}.crt", "tls.key": f"{part}.key"}
                assert items == {"ca.crt": "authority.pem", **own}


def test_probes_ask_grpc_health_for_the_service_that_is_there(rendered, case):
    for part in SERVICES:
        (container,) = named(rendered[case], "Deployment", part)["spec"]["template"]["spec"][
            "containers"
        ]
        if case != "plaintext":  # TLS, which kubelet's gRPC probes cannot speak
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                assert container[probe]["tcpSocket"] == {"port": PORTS[part]}
            continue
        assert container["startupProbe"]["grpc"] == {"port": PORTS[part]}
        assert container["livenessProbe"]["grpc"] == {"port": PORTS[part]}
        assert container["readinessProbe"]["grpc"] == {
            "port": PORTS[part],
            "service": HEALTH[part],
        }


def test_replicas_roll_without_a_gap_and_one_may_be_evicted(rendered, case):
    for part in SERVICES:
        spec = named(rendered[case], "Deployment", part)["spec"]
        if part == "autoscaler":  # what it observes is not elected: never two at once
            assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})
        else:
            assert spec["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}
        if case != "no-policies":
            budget = named(rendered[case], "PodDisruptionBudget", part)["spec"]
            assert budget == {"maxUnavailable": 1, "selector": spec["selector"]}


def test_services_are_headless_so_that_callers_spread_over_pods(rendered, case):
    for part in SERVICES:
        service = named(rendered[case], "Service", part)
        deployment = named(rendered[case], "Deployment", part)
        assert service["spec"]["clusterIP"] == "None"
        assert service["spec"]["selector"] == deployment["spec"]["selector"]["matchLabels"]
        assert service["spec"]["ports"][0] == {
            "name": "grpc",
            "port": PORTS[part],
            "targetPort": "grpc",
            "protocol": "TCP",
            "appProtocol": "grpc",
        }


def peers(rule: dict[str, Any], direction: str) -> set[str]:
    """Return the components that a rule of a policy names."""
    return {
        each["podSelector"]["matchLabels"]["app.kubernetes.io/component"]
        for each in rule.get(direction, [])
        if "podSelector" in each
    }


def test_policies_allow_exactly_the_calls_that_the_processes_are_told_to_make(rendered, case):
    if case == "no-policies":
        assert not of_kind(rendered[case], "NetworkPolicy")
        return
    told = {
        part: {
            name.removeprefix("TENURE_").removesuffix("_ADDRESS").lower()
            for name in environment(pod)
            if name.endswith("_ADDRESS")
        }
        for part, pod in pods(rendered[case])
        if part in (*SERVICES, "agent")
    }
    for part in told:
        policy = named(rendered[case], "NetworkPolicy", part)["spec"]
        assert policy["policyTypes"] == ["Ingress", "Egress"]
        may_call = set().union(*(peers(rule, "to") for rule in policy["egress"]))
        if part == "agent" and case != "everything":  # work may reach everything
            assert policy["egress"] == [{}]
        else:
            assert may_call - {"postgres", "etcd"} == told[part], part
        callers = {other for other, callees in told.items() if part in callees}
        rules = policy.get("ingress", [])
        assert set().union(*(peers(rule, "from") for rule in rules)) == callers, part


def test_stores_are_reached_by_those_who_use_them_only(rendered, case):
    if case == "no-policies":
        return
    for part in SERVICES:
        policy = named(rendered[case], "NetworkPolicy", part)["spec"]
        ports = {each["port"] for rule in policy["egress"] for each in rule["ports"]}
        assert (5433 if case == "everything" else 5432) in ports
        uses_etcd = "TENURE_ETCD_ENDPOINTS" in environment(
            named(rendered[case], "Deployment", part)["spec"]["template"]["spec"]
        )
        assert (2379 in ports) == uses_etcd
        with_etcd = case in ("trial", "everything")
        assert uses_etcd == (with_etcd and part in ("scheduler", "autoscaler"))
    if case == "trial":
        postgres = named(rendered[case], "NetworkPolicy", "postgres")["spec"]
        assert peers(postgres["ingress"][0], "from") == set(SERVICES)
        etcd = named(rendered[case], "NetworkPolicy", "etcd")["spec"]
        assert peers(etcd["ingress"][0], "from") == {"scheduler", "autoscaler"}
        assert "egress" not in postgres and "egress" not in etcd


def test_an_agent_is_reaped_for_and_given_time_to_stop_its_work(rendered, case):
    for each in of_kind(rendered[case], "DaemonSet"):
        assert component(each) == "agent"
        pod = each["spec"]["template"]["spec"]
        assert pod["shareProcessNamespace"] is True
        variables = environment(pod)
        assert variables["TENURE_AGENT_ID"] == "<spec.nodeName>"
        assert variables["TENURE_ON_STOP"] == "stop"
        assert pod["terminationGracePeriodSeconds"] >= int(variables["TENURE_STOP_WAIT_S"]) + 10
