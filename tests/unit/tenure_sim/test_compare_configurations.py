"""The ancestor's configurations mean what its manual says; what is not simulated is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from tenure_core.errors import Invalid
from tenure_core.leases.lease import Advance, BestEffort, LeaseSpec
from tenure_core.policies.admission import NoAdvance
from tenure_core.policies.backfilling import Backfilling
from tenure_core.policies.bundle import MEGABIT, Migration, Overheads
from tenure_core.policies.placement import HostSelection
from tenure_core.policies.preemption import BookedPreemptBestEffort, NoPreemption
from tenure_core.policies.pricing import Random
from tenure_core.resources import ResourceVector
from tenure_sim.compare_configurations import Configuration, read_configurations
from tenure_sim.compare_settings import policies_of, site_of, with_overheads
from tenure_sim.workload import SimLease, Workload

HERE = Path("/x/multi.conf")
MULTI = """
[multi]
tracedir = traces
tracefiles = a.swf.gz, b.lwf
injectiondir = inj
injectionfiles = i.lwf
annotationfiles = n.xml
[common:scheduling]
backfilling = off
suspension = all
[one:scheduling]
backfilling = aggressive
[two:simulation]
resources = 4 CPU:200,Memory:1024
"""


def single(**sections: dict[str, str]) -> Configuration:
    written = {"tracefile": {"tracefile": "t.swf"}, **sections}
    text = "\n".join(
        "\n".join([f"[{title}]", *(f"{key}={value}" for key, value in options.items())])
        for title, options in written.items()
    )
    (configuration,) = read_configurations(Path("/x/c.conf"), text)
    return configuration


def scheduling(**options: str) -> Configuration:
    return single(scheduling={key.replace("_", "-"): value for key, value in options.items()})


def test_a_multi_configuration_stands_for_every_combination():
    found = read_configurations(HERE, MULTI)
    assert [each.name for each in found] == [
        f"{profile}_{trace}{more}"
        for profile in ("one", "two")
        for trace in ("a", "b")
        for more in ("", "+i", "+n", "+i+n")
    ]
    last = found[-1]
    assert (last.trace, last.injection, last.annotation) == (
        Path("/x/traces/b.lwf"),
        Path("/x/inj/i.lwf"),
        Path("/x/n.xml"),
    )
    assert policies_of(found[0]).backfilling == Backfilling.EASY
    assert policies_of(last).backfilling == Backfilling.OFF


def test_runs_without_injection_can_be_left_out():
    text = MULTI.replace(
        "injectionfiles = i.lwf", "injectionfiles = i.lwf\nskip-no-injection = yes"
    )
    assert len(read_configurations(HERE, text)) == 8


@pytest.mark.parametrize(
    "text", ["nothing", "[multi]\n", "[multi]\ntracefiles = a\n", "[tracefile]\n"]
)
def test_a_file_that_describes_no_run_is_refused(text: str):
    with pytest.raises(Invalid):
        read_configurations(HERE, text)


def test_policies_of_a_configuration():
    configuration = scheduling(
        backfilling="intermediate",
        backfilling_reservations="4",
        policy_preemption="ar-preempts-everything",
        policy_host_selection="no-policy",
        suspension="none",
        override_suspend_time="30",
        override_resume_time="20",
        force_scheduling_threshold="60",
    )
    made = policies_of(configuration)
    assert made.backfilling == Backfilling.intermediate(4)
    assert made.preemption == BookedPreemptBestEffort(suspends=False)
    assert made.host_selection is HostSelection.FIRST_FIT
    assert (made.overheads, made.threshold_ms) == (Overheads(30_000, 20_000), 60_000)
    assert configuration.ignored == ()


def test_without_words_there_is_neither_backfilling_nor_preemption():
    made = policies_of(single())
    assert (made.backfilling, made.preemption) == (Backfilling.OFF, NoPreemption())


def test_what_would_change_the_outcome_and_is_not_simulated_is_named():
    configuration = single(
        general={"lease-preparation": "imagetransfer", "loglevel": "DEBUG"},
        scheduling={"enactment-overhead": "2", "suspension": "serial-only", "mapper": "greedy"},
        accounting={"datafile": "x"},
    )
    assert configuration.ignored == (
        "general.lease-preparation=imagetransfer",
        "scheduling.suspension=serial-only",
        "scheduling.enactment-overhead=2",
    )


@pytest.mark.parametrize(
    "options",
    [
        {"backfilling": "sometimes"},
        {"policy_preemption": "odd"},
        {"backfilling": "intermediate", "backfilling_reservations": "few"},
        {"override_suspend_time": "-3"},
    ],
)
def test_words_that_mean_nothing_are_refused(options: dict[str, str]):
    with pytest.raises(Invalid):
        policies_of(scheduling(**options))


@pytest.mark.parametrize(
    "text", ["3 CPU:200,Memory:1024", "3  CPU:200 Memory:1024", "3 CPU:200;Memory:1024"]
)
def test_both_forms_of_resources_are_read(text: str):
    site = site_of(single(simulation={"resources": text}))
    assert site is not None
    assert [node.capacity_at(0) for node in site.nodes] == [
        ResourceVector({"cpu": 2000, "memory": 2**30})
    ] * 3


def test_resources_of_the_trace_or_of_nobody():
    assert site_of(single(simulation={"resources": "in-tracefile"})) is None
    for text in ("many CPU:1", "3", "3 CPU"):
        with pytest.raises(Invalid):
            site_of(single(simulation={"resources": text}))


def test_overheads_lengthen_what_is_asked_for_and_what_is_run():
    amounts = ResourceVector({"cpu": 1000})
    specs = [
        LeaseSpec("o", "p", "sim", terms, 1, amounts, 100_000)
        for terms in (BestEffort(), Advance(5))
    ]
    workload = Workload.of("w", [SimLease(f"l{i}", 0, s, 50_000) for i, s in enumerate(specs)])

    def of(whom: str) -> tuple[list[int], list[int]]:
        overheads = {"add-overhead": whom, "runtime-slowdown-overhead": "10"}
        configuration = single(
            tracefile={"tracefile": "t", "bootshutdown-overhead": "5", **overheads}
        )
        longer = with_overheads(workload, configuration)
        return list(longer.requests), list(longer.runs)

    assert of("none") == ([100_000, 100_000], [50_000, 50_000])
    assert of("besteffort") == ([115_000, 100_000], [60_000, 50_000])
    assert of("all") == ([115_000, 115_000], [60_000, 60_000])


def test_prices_admission_shutdown_and_migration_of_a_configuration():
    configuration = single(
        scheduling={
            "policy-admission": "no-ARs", "policy-pricing": "random", "shutdown-time": "5",
            "migration": "yes", "backfilling": "off",
        },
        pricing={"min-rate": "1", "max-rate": "2.5", "seed": "7"},
        simulation={"imagetransfer-bandwidth": "100"},
    )  # fmt: skip
    made = policies_of(configuration)
    assert made.admission == NoAdvance()
    assert made.pricing == Random(1.0, 2.5, 7)
    assert made.overheads == Overheads(0, 0, 5_000, Migration.YES, 100 * MEGABIT)
    assert made.partial_starts
    assert configuration.ignored == ()


@pytest.mark.parametrize(
    "scheduling",
    [{"policy-admission": "whim"}, {"policy-pricing": "dear"}, {"migration": "maybe"},
     {"migration": "yes"}],
)  # fmt: skip
def test_words_of_a_configuration_that_mean_nothing_are_refused(scheduling: dict[str, str]):
    with pytest.raises(Invalid):
        policies_of(single(scheduling=scheduling))
