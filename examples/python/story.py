"""The conformance story with generated stubs and plain gRPC; see examples/README.md."""

import os
import time
import uuid
from pathlib import Path

import grpc
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from tenure.admission.v1 import admission_pb2 as api
from tenure.admission.v1 import lease_pb2 as lpb
from tenure.admission.v1.admission_pb2_grpc import AdmissionServiceStub

LABELS = {"story": os.environ["STORY_RUN"]}
KEY = (("authorization", f"Bearer {os.environ['TENURE_API_KEY']}"),)
AUTHORITY, PRIVATE_KEY, CERTIFICATE = (
    Path(os.environ[f"TENURE_TLS_{part}"]).read_bytes()
    for part in ("AUTHORITY", "PRIVATE_KEY", "CERTIFICATE")
)


def admission_with(credentials: grpc.ChannelCredentials) -> AdmissionServiceStub:
    address = os.environ["TENURE_ADMISSION_ADDRESS"]
    return AdmissionServiceStub(grpc.secure_channel(address, credentials))


# The server shows a certificate of our authority, and we show it ours.
admission = admission_with(grpc.ssl_channel_credentials(AUTHORITY, PRIVATE_KEY, CERTIFICATE))


def say(step: str, outcome: str) -> None:
    print(f"{step}\t{outcome}", flush=True)


def failure(error: grpc.RpcError) -> str:
    """Return the code, the reason and the fields that an error names."""
    words = [error.code().name]
    status = rpc_status.from_call(error)
    for detail in status.details if status else ():
        info, bad = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
        if detail.Unpack(info):
            words.append(info.reason)
        elif detail.Unpack(bad):
            words += sorted(violation.field for violation in bad.field_violations)
    return " ".join(words)


def refused(step: str, call, request, *, timeout: float = 10, metadata=KEY) -> None:
    try:
        call(request, timeout=timeout, metadata=metadata)
        say(step, "OK")
    except grpc.RpcError as error:
        say(step, failure(error))


def wanted(**terms) -> lpb.Lease:
    return lpb.Lease(
        node_count=1,
        amounts={"cpu": 100},
        duration=Duration(seconds=60),
        labels=LABELS,
        terms=lpb.Terms(**terms),
    )


def hours(count: int) -> Timestamp:
    return Timestamp(seconds=int(time.time()) + count * 3600)


def create(lease: lpb.Lease, request_id: str) -> lpb.Lease:
    request = api.CreateLeaseRequest(lease=lease, request_id=request_id)
    return admission.CreateLease(request, timeout=10, metadata=KEY).lease


def state(lease: lpb.Lease) -> str:
    return lpb.Lease.State.Name(lease.state).removeprefix("STATE_")


# All four kinds of lease.
created = {}
for kind, terms in {
    "immediate": {"immediate": lpb.ImmediateTerms()},
    "best effort": {"best_effort": lpb.BestEffortTerms()},
    "advance": {"advance": lpb.AdvanceTerms(start_time=hours(20))},
    "deadline": {"deadline": lpb.DeadlineTerms(deadline_time=hours(30))},
}.items():
    request_id = str(uuid.uuid4())
    asked = wanted(**terms)
    created[kind] = create(asked, request_id)
    say(f"create {kind}", state(created[kind]))

# A repeat is the same lease; the same id for something else is refused.
again = create(asked, request_id)
say("repeat", "the same lease" if again.name == created["deadline"].name else again.name)
asked.node_count = 2
refused("reuse", admission.CreateLease, api.CreateLeaseRequest(lease=asked, request_id=request_id))

# A page at a time.
found, pages, token, resume_token = [], 0, "", ""
while pages == 0 or token:
    request = api.ListLeasesRequest(page_size=2, page_token=token, labels=LABELS)
    page = admission.ListLeases(request, timeout=10, metadata=KEY)
    found, pages, token = found + list(page.leases), pages + 1, page.next_page_token
    resume_token = resume_token or page.resume_token
say("list", f"{len(found)} leases in {pages} pages")

# Watch one lease, cut the stream in the middle, go on from the last token.
one = create(wanted(advance=lpb.AdvanceTerms(start_time=hours(21))), str(uuid.uuid4()))
versions: list[int] = []


def watch(enough) -> None:
    global resume_token
    request = api.WatchLeasesRequest(resume_token=resume_token, name=one.name)
    events = admission.WatchLeases(request, timeout=30, metadata=KEY)
    for event in events:
        resume_token = event.resume_token
        if event.HasField("lease"):
            versions.append(event.lease.version)
            if enough(event.lease):
                break
    events.cancel()


watch(lambda _: True)
admission.WaitLease(
    api.WaitLeaseRequest(name=one.name, states=[lpb.Lease.STATE_SCHEDULED]),
    timeout=60,
    metadata=KEY,
)
admission.CancelLease(api.CancelLeaseRequest(name=one.name), timeout=10, metadata=KEY)
watch(lambda lease: lease.state == lpb.Lease.STATE_CANCELLED)
whole = versions == list(range(1, len(versions) + 1)) and len(versions) > 2
say("watch", f"cut and resumed: {'no gap, no repeat' if whole else versions}")

# Why is it where it is?
request = api.ExplainLeaseRequest(name=created["advance"].name)
explained = admission.ExplainLease(request, timeout=10, metadata=KEY)
say("explain", "in sentences" if explained.sentences else "in silence")

# Change what somebody else has changed.
stale = lpb.Lease(name=created["advance"].name, etag="v0", duration=Duration(seconds=120))
refused("extend with a stale etag", admission.UpdateLease, api.UpdateLeaseRequest(lease=stale))

# Give it up.
name = created["advance"].name
admission.CancelLease(api.CancelLeaseRequest(name=name), timeout=10, metadata=KEY)
ended = admission.WaitLease(api.WaitLeaseRequest(name=name), timeout=70, metadata=KEY).lease
say("cancel", state(ended))

# What is wrong, all of it.
bad = lpb.Lease(amounts={"cpu": 100}, terms=lpb.Terms(best_effort=lpb.BestEffortTerms()))
refused("invalid", admission.CreateLease, api.CreateLeaseRequest(lease=bad))
refused("not found", admission.GetLease, api.GetLeaseRequest(name="leases/nobody-s"))

# No longer than we like, and not without a key.
request = api.WaitLeaseRequest(name=created["deadline"].name)
refused("deadline", admission.WaitLease, request, timeout=0.3)
request = api.GetLeaseRequest(name=created["deadline"].name)
refused("no key", admission.GetLease, request, metadata=())

# A key alone does not even reach the service.
stranger = admission_with(grpc.ssl_channel_credentials(AUTHORITY))
try:
    stranger.GetLease(request, timeout=10, metadata=KEY)
    say("no certificate", "OK")
except grpc.RpcError as error:
    say("no certificate", "answered" if rpc_status.from_call(error) else "refused")

for lease in created.values():
    admission.CancelLease(api.CancelLeaseRequest(name=lease.name), timeout=10, metadata=KEY)
