// The conformance story in TypeScript, on Node; see examples/README.md.

import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { AdmissionService } from "#stubs/tenure/admission/v1/admission_pb.js";
import {
  type Lease,
  LeaseSchema,
  Lease_State as LeaseState,
} from "#stubs/tenure/admission/v1/lease_pb.js";
import { BadRequestSchema, ErrorInfoSchema } from "#stubs/google/rpc/error_details_pb.js";

const labels = { story: process.env.STORY_RUN ?? "" };
const headers = { authorization: `Bearer ${process.env.TENURE_API_KEY}` };
const [ca, cert, key] = ["AUTHORITY", "CERTIFICATE", "PRIVATE_KEY"].map((part) =>
  readFileSync(process.env[`TENURE_TLS_${part}`] ?? ""),
);

function admissionWith(nodeOptions: object) {
  const baseUrl = `https://${process.env.TENURE_ADMISSION_ADDRESS}`;
  return createClient(AdmissionService, createGrpcTransport({ baseUrl, nodeOptions }));
}

// The server shows a certificate of our authority, and we show it ours.
const admission = admissionWith({ ca, cert, key });
const soon = { headers, timeoutMs: 10_000 };
const later = { headers, timeoutMs: 70_000 };

function say(step: string, outcome: string): void {
  console.log(`${step}\t${outcome}`);
}

/** The code, the reason and the fields that an error names. */
function failure(error: unknown): string {
  const told = ConnectError.from(error);
  const words = [Code[told.code].replace(/(?<!^)([A-Z])/g, "_$1").toUpperCase()];
  for (const info of told.findDetails(ErrorInfoSchema)) words.push(info.reason);
  for (const bad of told.findDetails(BadRequestSchema))
    words.push(...bad.fieldViolations.map((violation) => violation.field).sort());
  return words.join(" ");
}

async function refused(step: string, call: Promise<unknown>): Promise<void> {
  say(step, await call.then(() => "OK", failure));
}

type Terms = NonNullable<MessageInitShape<typeof LeaseSchema>["terms"]>["kind"];

function wanted(kind: Terms, nodeCount = 1) {
  return create(LeaseSchema, {
    nodeCount,
    amounts: { cpu: 100n },
    duration: { seconds: 60n },
    labels,
    terms: { kind },
  });
}

function hours(count: number) {
  return timestampFromMs(Math.floor(Date.now() / 1000) * 1000 + count * 3_600_000);
}

async function created(lease: Lease, requestId: string): Promise<Lease> {
  const answer = await admission.createLease({ lease, requestId }, soon);
  return answer.lease!;
}

const state = (lease: Lease) => LeaseState[lease.state];

// All four kinds of lease.
const kinds: [string, Terms][] = [
  ["immediate", { case: "immediate", value: {} }],
  ["best effort", { case: "bestEffort", value: {} }],
  ["advance", { case: "advance", value: { startTime: hours(20) } }],
  ["deadline", { case: "deadline", value: { deadlineTime: hours(30) } }],
];
const leases = new Map<string, Lease>();
let requestId = "";
for (const [kind, terms] of kinds) {
  requestId = randomUUID();
  const lease = await created(wanted(terms), requestId);
  leases.set(kind, lease);
  say(`create ${kind}`, state(lease));
}
const advance = leases.get("advance")!.name;
const deadline = leases.get("deadline")!.name;

// A repeat is the same lease; the same id for something else is refused.
const again = await created(wanted(kinds[3][1]), requestId);
say("repeat", again.name === deadline ? "the same lease" : again.name);
const other = wanted(kinds[3][1], 2);
await refused("reuse", admission.createLease({ lease: other, requestId }, soon));

// A page at a time.
let [found, pages, pageToken, resumeToken] = [0, 0, "", ""];
while (pages === 0 || pageToken !== "") {
  const page = await admission.listLeases({ pageSize: 2, pageToken, labels }, soon);
  found += page.leases.length;
  pages += 1;
  pageToken = page.nextPageToken;
  resumeToken ||= page.resumeToken;
}
say("list", `${found} leases in ${pages} pages`);

// Watch one lease, cut the stream in the middle, go on from the last token.
const one = await created(
  wanted({ case: "advance", value: { startTime: hours(21) } }),
  randomUUID(),
);
const versions: bigint[] = [];
async function watch(enough: (lease: Lease) => boolean): Promise<void> {
  const cut = new AbortController();
  const request = { resumeToken, name: one.name };
  const options = { headers, timeoutMs: 30_000, signal: cut.signal };
  for await (const event of admission.watchLeases(request, options)) {
    resumeToken = event.resumeToken;
    if (event.lease === undefined) continue;
    versions.push(event.lease.version);
    if (enough(event.lease)) break;
  }
  cut.abort();
}
await watch(() => true);
await admission.waitLease({ name: one.name, states: [LeaseState.SCHEDULED] }, later);
await admission.cancelLease({ name: one.name }, soon);
await watch((lease) => lease.state === LeaseState.CANCELLED);
const whole = versions.length > 2 && versions.every((version, i) => version === BigInt(i + 1));
say("watch", `cut and resumed: ${whole ? "no gap, no repeat" : versions}`);

// Why is it where it is?
const explained = await admission.explainLease({ name: advance }, soon);
say("explain", explained.sentences.length > 0 ? "in sentences" : "in silence");

// Change what somebody else has changed.
const stale = create(LeaseSchema, { name: advance, etag: "v0", duration: { seconds: 120n } });
await refused("extend with a stale etag", admission.updateLease({ lease: stale }, soon));

// Give it up.
await admission.cancelLease({ name: advance }, soon);
const ended = await admission.waitLease({ name: advance }, later);
say("cancel", state(ended.lease!));

// What is wrong, all of it.
const bad = create(LeaseSchema, {
  amounts: { cpu: 100n },
  terms: { kind: { case: "bestEffort", value: {} } },
});
await refused("invalid", admission.createLease({ lease: bad }, soon));
await refused("not found", admission.getLease({ name: "leases/nobody-s" }, soon));

// No longer than we like, and not without a key.
await refused("deadline", admission.waitLease({ name: deadline }, { headers, timeoutMs: 300 }));
await refused("no key", admission.getLease({ name: deadline }));

// A key alone does not even reach the service.
const stranger = admissionWith({ ca }).getLease({ name: deadline }, soon);
const answered = (error: unknown) =>
  ConnectError.from(error).details.length > 0 ? "answered" : "refused";
say("no certificate", await stranger.then(() => "OK", answered));

for (const lease of leases.values()) await admission.cancelLease({ name: lease.name }, soon);
