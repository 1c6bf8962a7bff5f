"""The lease workload format is read as its manual says, and written so that it reads the same."""

from __future__ import annotations

import io

import pytest

from tenure_core.errors import Invalid
from tenure_core.leases.lease import Advance, BestEffort, Deadline, Immediate, Work
from tenure_core.resources import ResourceVector
from tenure_sim.annotate import annotated, compact, injected
from tenure_sim.lwf import IMAGE_SIZE, parse_lwf
from tenure_sim.lwf_write import write_lwf
from tenure_sim.workload import BadLine

SITE = """<site><resource-types names="CPU Memory"/><nodes>
<node-set numnodes="2"><res type="CPU"><instance amount="100"/><instance amount="100"/></res>
<res type="Memory" amount="1024"/></node-set>
<node-set numnodes="1"><res type="CPU" amount="100"/><res type="Memory" amount="512"/></node-set>
</nodes></site>"""
NODES = '<nodes><node-set numnodes="2"><res type="CPU" amount="50"/></node-set></nodes>'


def request(lease: str, arrival: str = "00:00:10", attributes: str = "", real: str = "") -> str:
    return (
        f'<lease-request arrival="{arrival}">{real}'
        f'<lease preemptible="true" {attributes}>{NODES}{lease}</lease></lease-request>\n'
    )


def document(*requests: str, site: str = "") -> bytes:
    listed = "".join(requests)
    return (
        f'<lease-workload name="w">{site}<lease-requests>\n{listed}</lease-requests>'
        "</lease-workload>"
    ).encode()


QUEUED = '<start/><duration time="01:00:00"/><software><none/></software>'


def only(*requests: str):
    workload = parse_lwf("t.lwf", document(*requests)).workload
    assert len(workload) == 1
    return workload, workload.spec(0)


def test_a_lease_that_queues():
    real = '<realduration time="00:30:00"/>'
    workload, spec = only(request(QUEUED, attributes='id="7" user="3"', real=real))
    assert (workload.ids, workload.arrivals) == (["7"], [10_000])
    assert (workload.runs, workload.owners) == ([1_800_000], ["3"])
    assert (spec.terms, spec.node_count, spec.duration_ms) == (BestEffort(), 2, 3_600_000)
    assert spec.amounts == ResourceVector({"cpu": 500})


def test_a_real_duration_counts_only_where_it_is_shorter():
    workload, _ = only(request(QUEUED, real='<realduration time="02:00:00"/>'))
    assert workload.runs == [3_600_000]


@pytest.mark.parametrize(
    ("words", "terms"),
    [
        ("<start><now/></start>", Immediate()),
        ('<start><exact time="1:00:00:01.5"/></start>', Advance(86_401_500)),
        (
            '<start><exact time="00:01:00"/></start><deadline time="05:00:00"/>',
            Deadline(18_000_000, 60_000),
        ),
        ('<start/><deadline time="05:00:00"/>', Deadline(18_000_000)),
    ],
)
def test_the_terms_of_a_lease(words: str, terms: object):
    _, spec = only(request(f'{words}<duration time="00:10:00"/>'))
    assert spec.terms == terms


def test_image_and_extras_are_kept():
    more = (
        '<software><disk-image id="a.img" size="2048"/></software>'
        '<extra><attr name="rate" value="0.5"/></extra>'
    )
    _, spec = only(request(f'<start/><duration time="00:10:00"/>{more}'))
    assert spec.work == Work(image="a.img")
    assert spec.labels == {"rate": "0.5", IMAGE_SIZE: "2048"}


def test_the_site_numbers_its_nodes_over_all_sets_and_adds_instances_up():
    site = parse_lwf("t", document(site=SITE)).site
    assert site is not None
    assert [(node.id, dict(node.capacity_at(0))) for node in site.nodes] == [
        ("node-1", {"cpu": 2000, "memory": 2**30}),
        ("node-2", {"cpu": 2000, "memory": 2**30}),
        ("node-3", {"cpu": 1000, "memory": 2**29}),
    ]


def test_what_is_written_reads_the_same():
    requests = [
        request(QUEUED, "00:00:00", 'id="1" user="9"', '<realduration time="00:00:05"/>'),
        request('<start><now/></start><duration time="00:10:00.250"/>', "00:00:02", 'id="2"'),
        request(
            '<start><exact time="09:00:00"/></start><duration time="100:00:00"/>'
            '<deadline time="300:00:00"/><software><disk-image id="&lt;i&gt;" size="7"/></software>'
            '<extra><attr name="a" value="&quot;b&quot;"/></extra>',
            "00:00:02",
            'id="x&amp;y"',
        ),
    ]
    first = parse_lwf("t", document(*requests, site=SITE))
    out = io.StringIO()
    write_lwf(first.workload, out, site=first.site)
    second = parse_lwf("t", out.getvalue().encode())
    assert second.workload == first.workload
    assert first.site is not None and second.site is not None
    assert [n.capacity for n in second.site.nodes] == [n.capacity for n in first.site.nodes]


@pytest.mark.parametrize(
    ("lease", "reason"),
    [
        ('<start/><duration time="soon"/>', "time of <duration> is [DD:]HH:MM:SS[.ff], not 'soon'"),
        ('<start/><duration time="00:00:00"/>', "a duration is longer than nothing"),
        ('<duration time="00:00:01"/>', "<lease> has no <start>"),
    ],
)
def test_a_bad_lease_is_named_by_line_and_reason(lease: str, reason: str):
    text = document(request(QUEUED), request(lease), request(QUEUED))
    with pytest.raises(Invalid) as refused:
        parse_lwf("t.lwf", text)
    assert [(v.field, v.description) for v in refused.value.violations] == [("t.lwf:3", reason)]
    workload = parse_lwf("t.lwf", text, skip_bad=True).workload
    assert (workload.bad, len(workload)) == ((BadLine(3, reason),), 2)


def test_nodes_that_ask_for_different_amounts_are_refused():
    mixed = NODES.replace("</nodes>", '<node-set numnodes="1"/></nodes>')
    text = document(request(QUEUED).replace(NODES, mixed))
    with pytest.raises(Invalid, match="all of its nodes ask for the same"):
        parse_lwf("t", text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"<lease-workload>\n<site></lease-workload>", "this is no XML: mismatched tag"),
        (b"<lease-requests/>", "this is a <lease-requests>, not a <lease-workload>"),
        (
            b'<!DOCTYPE a [<!ENTITY b "cc">]><lease-workload/>',
            "a trace declares no entities",
        ),
    ],
)
def test_what_is_no_lease_workload_is_refused(text: bytes, reason: str):
    with pytest.raises(Invalid) as refused:
        parse_lwf("t", text)
    assert refused.value.violations[0].description == reason


def test_annotations_replace_terms_and_count_from_the_arrival():
    workload = parse_lwf("t", document(request(QUEUED, attributes='id="1"'))).workload
    text = (
        b'<lease-annotations><lease-annotation id="1"><start><exact time="00:01:00"/></start>'
        b'<deadline time="10:00:00"/><software><disk-image id="i" size="1"/></software>'
        b'<extra><attr name="k" value="v"/></extra></lease-annotation></lease-annotations>'
    )
    spec = annotated(workload, "a", text).spec(0)
    assert spec.terms == Deadline(36_010_000, 70_000)
    assert (spec.work.image, spec.labels) == ("i", {IMAGE_SIZE: "1", "k": "v"})


def test_a_deadline_alone_keeps_the_start():
    exact = '<start><exact time="00:02:00"/></start><duration time="00:01:00"/>'
    workload = parse_lwf("t", document(request(exact))).workload
    text = (
        b"<lease-annotations><lease-annotation>"
        b'<deadline time="00:10:00"/></lease-annotation></lease-annotations>'
    )
    assert annotated(workload, "a", text).spec(0).terms == Deadline(610_000, 120_000)


@pytest.mark.parametrize(
    ("inner", "reason"),
    [
        ('<lease-annotation id="1"/><lease-annotation/>', "either every annotation has an id"),
        ('<lease-annotation id="5"/>', "there is no lease for this annotation"),
        ("<lease-annotation/><lease-annotation/>", "there is no lease for this annotation"),
    ],
)
def test_annotations_that_fit_no_lease_are_refused(inner: str, reason: str):
    workload = parse_lwf("t", document(request(QUEUED, attributes='id="1"'))).workload
    text = f"<lease-annotations>{inner}</lease-annotations>".encode()
    with pytest.raises(Invalid, match=reason):
        annotated(workload, "a", text)


def test_injected_leases_come_behind_those_of_the_same_instant_under_ids_of_their_own():
    queue = parse_lwf("q", document(request(QUEUED, attributes='id="1"'))).workload
    later = request(QUEUED, "00:00:05", 'id="2"')
    others = parse_lwf("i", document(later, request(QUEUED, attributes='id="1"'))).workload
    merged = injected(queue, others)
    assert merged.ids == ["1000002", "1", "1000001"]
    assert merged.arrivals == [5_000, 10_000, 10_000]


def test_a_workload_of_equal_slots_is_made_plain_and_another_is_not():
    plain = compact(parse_lwf("t", document(request(QUEUED), request(QUEUED))).workload)
    assert plain.specs is None
    assert plain.slot == ResourceVector({"cpu": 500})
    fixed = request(QUEUED).replace('preemptible="true"', 'preemptible="false"')
    kept = compact(parse_lwf("t", document(request(QUEUED), fixed)).workload)
    assert kept.specs is not None


def test_a_workload_without_specs_keeps_what_leases_are_labelled_with():
    """Prices and policies of one's own read labels."""
    labelled = request(QUEUED).replace(
        "</lease>", '<extra><attr name="simul_userrate" value="2"/></extra></lease>'
    )
    plain = compact(parse_lwf("t", document(labelled, request(QUEUED))).workload)
    assert plain.specs is None
    assert [plain.spec(i).labels for i in range(2)] == [{"simul_userrate": "2"}, {}]
    assert plain.first(1).labels == [{"simul_userrate": "2"}]
