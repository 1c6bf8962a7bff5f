"""The chart renders, lints strictly, and is what three versions of Kubernetes accept."""

from __future__ import annotations

import pytest
from tests.helm.manifests import of_kind
from tests.helm.values_matrix import CASES, REFUSED


@pytest.mark.parametrize("case", CASES)
def test_lints_renders_and_fits_the_schemas(rendered, case):
    found = rendered[case]
    assert (found["error"], found["lint"], found["invalid"]) == ("", [], [])
    assert len(found["objects"]) > 10


@pytest.mark.parametrize("case", REFUSED)
def test_refuses_what_cannot_work_and_says_what_is_wrong(refused, case):
    assert REFUSED[case][1] in refused[case]["error"]


@pytest.mark.parametrize("case", CASES)
def test_names_are_unique_short_and_in_the_release_namespace(rendered, case):
    seen = [(each["kind"], each["metadata"]["name"]) for each in rendered[case]["objects"]]
    assert len(set(seen)) == len(seen)
    for each in rendered[case]["objects"]:
        assert each["metadata"]["namespace"] == "leases"
        # A Deployment's pods get 17 characters more, and become TENURE_INSTANCE (at most 63).
        assert len(each["metadata"]["name"]) <= 63 - 17


def test_notes_say_how_to_reach_the_services(rendered):
    notes = rendered["trial"]["notes"]
    for service, port in (("admission", 7001), ("autoscaler", 7005)):
        assert f"deployment/demo-tenure-{service} {port}:{port}" in notes
        assert f"TENURE_{service.upper()}_ADDRESS=127.0.0.1:{port}" in notes
    assert "get secret demo-tenure-keys" in notes
    assert "without backups" in notes
    assert "without backups" not in rendered["given-secrets"]["notes"]


def test_a_trial_brings_its_stores_and_a_cluster_does_not(rendered):
    def stores(case):
        return sorted(each["metadata"]["name"] for each in of_kind(rendered[case], "StatefulSet"))

    assert stores("trial") == ["demo-tenure-etcd", "demo-tenure-postgres"]
    assert stores("given-secrets") == stores("everything") == []
