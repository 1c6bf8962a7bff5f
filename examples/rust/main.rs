//! The conformance story in Rust; see examples/README.md.

use std::{
    collections::{BTreeMap, HashMap},
    env,
    error::Error,
    iter::successors,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use prost_types::Timestamp;
use tonic::{
    Code, Request, Response, Status, TimeoutExpired,
    transport::{Certificate, Channel, ClientTlsConfig, Identity},
};
use tonic_types::StatusExt;
use uuid::Uuid;

mod stubs {
    #![allow(dead_code, clippy::all)]
    include!(concat!(env!("OUT_DIR"), "/stubs.rs"));
}
use stubs::tenure::admission::v1::{
    AdvanceTerms, BestEffortTerms, CancelLeaseRequest, CreateLeaseRequest, DeadlineTerms,
    ExplainLeaseRequest, GetLeaseRequest, ImmediateTerms, Lease, ListLeasesRequest, Terms,
    UpdateLeaseRequest, WaitLeaseRequest, WatchLeasesRequest,
    admission_service_client::AdmissionServiceClient, lease::State, terms::Kind,
};

type Client = AdmissionServiceClient<Channel>;

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("set {name}"))
}

fn pem(part: &str) -> Result<Vec<u8>, std::io::Error> {
    std::fs::read(variable(&format!("TENURE_TLS_{part}")))
}

fn admission_with(tls: ClientTlsConfig) -> Result<Client, Box<dyn Error>> {
    let address = format!("https://{}", variable("TENURE_ADMISSION_ADDRESS"));
    Ok(Client::new(Channel::from_shared(address)?.tls_config(tls)?.connect_lazy()))
}

fn say(step: &str, outcome: impl AsRef<str>) {
    println!("{step}\t{}", outcome.as_ref());
}

/// Returns a request with the caller's key and a time limit.
fn within<T>(limit: Duration, message: T) -> Request<T> {
    let mut request = Request::new(message);
    let key = format!("Bearer {}", variable("TENURE_API_KEY"));
    request.metadata_mut().insert("authorization", key.parse().expect("a key is ASCII"));
    request.set_timeout(limit);
    request
}

fn soon<T>(message: T) -> Request<T> {
    within(Duration::from_secs(10), message)
}

fn later<T>(message: T) -> Request<T> {
    within(Duration::from_secs(70), message)
}

/// Writes a code as the other languages do: NOT_FOUND for NotFound.
fn upper_snake(code: Code) -> String {
    let mut text = String::new();
    for letter in format!("{code:?}").chars() {
        if letter.is_uppercase() && !text.is_empty() {
            text.push('_');
        }
        text.push(letter.to_ascii_uppercase());
    }
    text
}

/// Returns the code of an error; a call that tonic's own timer ends, it calls CANCELLED.
fn code(error: &Status) -> Code {
    let mut causes = successors(error.source(), |&cause| cause.source());
    let timed_out = causes.any(|cause| cause.is::<TimeoutExpired>());
    if timed_out { Code::DeadlineExceeded } else { error.code() }
}

/// Returns the code, the reason and the fields that an error names.
fn failure(error: &Status) -> String {
    let mut words = vec![upper_snake(code(error))];
    words.extend(error.get_details_error_info().map(|info| info.reason));
    if let Some(bad) = error.get_details_bad_request() {
        let mut fields: Vec<_> = bad.field_violations.into_iter().map(|it| it.field).collect();
        fields.sort();
        words.extend(fields);
    }
    words.join(" ")
}

fn refused<T>(step: &str, outcome: Result<Response<T>, Status>) {
    say(step, outcome.err().map_or("OK".into(), |error| failure(&error)));
}

fn labels() -> HashMap<String, String> {
    HashMap::from([("story".into(), variable("STORY_RUN"))])
}

fn seconds(seconds: i64) -> Option<prost_types::Duration> {
    Some(prost_types::Duration { seconds, nanos: 0 })
}

fn hours(count: i64) -> Option<Timestamp> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("later than 1970");
    Some(Timestamp { seconds: now.as_secs() as i64 + count * 3600, nanos: 0 })
}

fn wanted(kind: Kind) -> Lease {
    Lease {
        node_count: 1,
        amounts: [("cpu".into(), 100)].into(),
        duration: seconds(60),
        labels: labels(),
        terms: Some(Terms { kind: Some(kind) }),
        ..Lease::default()
    }
}

async fn create(admission: &mut Client, lease: Lease, request_id: &str) -> Result<Lease, Status> {
    let request_id = request_id.into();
    let request = CreateLeaseRequest { lease: Some(lease), request_id, ..Default::default() };
    let answer = admission.create_lease(soon(request)).await?.into_inner();
    answer.lease.ok_or_else(|| Status::internal("no lease in the answer"))
}

async fn cancel(admission: &mut Client, name: &str) -> Result<(), Status> {
    let request = CancelLeaseRequest { name: name.into(), ..Default::default() };
    admission.cancel_lease(soon(request)).await.map(drop)
}

fn state(lease: &Lease) -> &str {
    lease.state().as_str_name().trim_start_matches("STATE_")
}

/// Follows a lease from a token until it has seen enough; then the stream is dropped: that is the cut.
async fn watch(
    admission: &mut Client,
    name: &str,
    resume_token: &mut String,
    versions: &mut Vec<i64>,
    enough: fn(&Lease) -> bool,
) -> Result<(), Status> {
    let (name, token) = (name.into(), resume_token.clone());
    let request = WatchLeasesRequest { resume_token: token, name, ..Default::default() };
    let mut events = admission.watch_leases(later(request)).await?.into_inner();
    while let Some(event) = events.message().await? {
        *resume_token = event.resume_token;
        let Some(lease) = event.lease else { continue };
        versions.push(lease.version);
        if enough(&lease) {
            break;
        }
    }
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    // The server shows a certificate of our authority, and we show it ours.
    let trusting = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem("AUTHORITY")?));
    let ours = Identity::from_pem(pem("CERTIFICATE")?, pem("PRIVATE_KEY")?);
    let mut admission = admission_with(trusting.clone().identity(ours))?;

    // All four kinds of lease.
    let mut created = BTreeMap::new();
    let (mut asked, mut request_id) = (Lease::default(), String::new());
    for (kind, terms) in [
        ("immediate", Kind::Immediate(ImmediateTerms {})),
        ("best effort", Kind::BestEffort(BestEffortTerms {})),
        ("advance", Kind::Advance(AdvanceTerms { start_time: hours(20) })),
        (
            "deadline",
            Kind::Deadline(DeadlineTerms { deadline_time: hours(30), ..Default::default() }),
        ),
    ] {
        (asked, request_id) = (wanted(terms), Uuid::new_v4().to_string());
        let lease = create(&mut admission, asked.clone(), &request_id).await?;
        say(&format!("create {kind}"), state(&lease));
        created.insert(kind, lease.name);
    }
    let (advance, deadline) = (created["advance"].clone(), created["deadline"].clone());

    // A repeat is the same lease; the same id for something else is refused.
    let again = create(&mut admission, asked.clone(), &request_id).await?.name;
    say("repeat", if again == deadline { "the same lease" } else { &again });
    let other = Some(Lease { node_count: 2, ..asked });
    let request = CreateLeaseRequest { lease: other, request_id, ..Default::default() };
    refused("reuse", admission.create_lease(soon(request)).await);

    // A page at a time.
    let (mut found, mut pages) = (0, 0);
    let (mut page_token, mut resume_token) = (String::new(), String::new());
    while pages == 0 || !page_token.is_empty() {
        let labels = labels();
        let request = ListLeasesRequest { page_size: 2, page_token, labels, ..Default::default() };
        let page = admission.list_leases(soon(request)).await?.into_inner();
        (found, pages, page_token) = (found + page.leases.len(), pages + 1, page.next_page_token);
        if resume_token.is_empty() {
            resume_token = page.resume_token;
        }
    }
    say("list", format!("{found} leases in {pages} pages"));

    // Watch one lease, cut the stream in the middle, go on from the last token.
    let terms = Kind::Advance(AdvanceTerms { start_time: hours(21) });
    let one = create(&mut admission, wanted(terms), &Uuid::new_v4().to_string()).await?.name;
    let mut versions = Vec::new();
    watch(&mut admission, &one, &mut resume_token, &mut versions, |_| true).await?;
    let states = vec![State::Scheduled.into()];
    let request = WaitLeaseRequest { name: one.clone(), states, ..Default::default() };
    admission.wait_lease(later(request)).await?;
    cancel(&mut admission, &one).await?;
    watch(&mut admission, &one, &mut resume_token, &mut versions, |lease| {
        lease.state() == State::Cancelled
    })
    .await?;
    let whole = versions.len() > 2 && versions.iter().copied().eq(1..=versions.len() as i64);
    let seen = if whole { "no gap, no repeat".into() } else { format!("{versions:?}") };
    say("watch", format!("cut and resumed: {seen}"));

    // Why is it where it is?
    let request = ExplainLeaseRequest { name: advance.clone() };
    let explained = admission.explain_lease(soon(request)).await?.into_inner();
    say("explain", if explained.sentences.is_empty() { "in silence" } else { "in sentences" });

    // Change what somebody else has changed.
    let (name, etag) = (advance.clone(), "v0".into());
    let stale = Some(Lease { name, etag, duration: seconds(120), ..Lease::default() });
    let request = UpdateLeaseRequest { lease: stale, ..Default::default() };
    refused("extend with a stale etag", admission.update_lease(soon(request)).await);

    // Give it up.
    cancel(&mut admission, &advance).await?;
    let request = WaitLeaseRequest { name: advance, ..Default::default() };
    let ended = admission.wait_lease(later(request)).await?.into_inner();
    say("cancel", state(&ended.lease.unwrap_or_default()));

    // What is wrong, all of it.
    let best_effort = Kind::BestEffort(BestEffortTerms {});
    let bad = Lease { node_count: 0, duration: None, ..wanted(best_effort) };
    let request = CreateLeaseRequest { lease: Some(bad), ..Default::default() };
    refused("invalid", admission.create_lease(soon(request)).await);
    let request = GetLeaseRequest { name: "leases/nobody-s".into() };
    refused("not found", admission.get_lease(soon(request)).await);

    // No longer than we like, and not without a key.
    let request = WaitLeaseRequest { name: deadline.clone(), ..Default::default() };
    let limit = Duration::from_millis(300);
    refused("deadline", admission.wait_lease(within(limit, request)).await);
    let request = GetLeaseRequest { name: deadline };
    refused("no key", admission.get_lease(request.clone()).await);

    // A key alone does not even reach the service.
    say(
        "no certificate",
        match admission_with(trusting)?.get_lease(soon(request)).await {
            Ok(_) => "OK",
            Err(status) if status.get_details_error_info().is_some() => "answered",
            Err(_) => "refused",
        },
    );

    for name in created.values() {
        cancel(&mut admission, name).await?;
    }
    Ok(())
}
