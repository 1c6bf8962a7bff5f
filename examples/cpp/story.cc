// The conformance story in C++; see examples/README.md.

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <map>
#include <memory>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "tenure/admission/v1/admission.grpc.pb.h"

namespace api = tenure::admission::v1;
using std::chrono::milliseconds;
using std::chrono::seconds;
using std::literals::operator""s;
using std::literals::operator""ms;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) throw std::runtime_error("set "s + name);
  return value;
}

std::string pem(const std::string& part) {
  std::ifstream file(variable(("TENURE_TLS_" + part).c_str()));
  return {std::istreambuf_iterator<char>(file), {}};
}

std::unique_ptr<api::AdmissionService::Stub> admission_with(const grpc::SslCredentialsOptions& tls) {
  const auto address = variable("TENURE_ADMISSION_ADDRESS");
  return api::AdmissionService::NewStub(grpc::CreateChannel(address, grpc::SslCredentials(tls)));
}

void say(const std::string& step, const std::string& outcome) {
  std::cout << step << '\t' << outcome << std::endl;
}

// The caller's key and a time limit.
struct Within : grpc::ClientContext {
  explicit Within(milliseconds limit) {
    AddMetadata("authorization", "Bearer " + variable("TENURE_API_KEY"));
    set_deadline(std::chrono::system_clock::now() + limit);
  }
};

// Writes a code as the other languages do.
std::string name_of(grpc::StatusCode code) {
  static const std::map<grpc::StatusCode, std::string> names = {
      {grpc::OK, "OK"},
      {grpc::INVALID_ARGUMENT, "INVALID_ARGUMENT"},
      {grpc::DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED"},
      {grpc::NOT_FOUND, "NOT_FOUND"},
      {grpc::ABORTED, "ABORTED"},
      {grpc::UNAVAILABLE, "UNAVAILABLE"},
      {grpc::UNAUTHENTICATED, "UNAUTHENTICATED"},
  };
  auto found = names.find(code);
  return found == names.end() ? "code " + std::to_string(code) : found->second;
}

// Returns the code, the reason and the fields that an error names.
std::string failure(const grpc::Status& error) {
  std::string words = name_of(error.error_code());
  google::rpc::Status status;
  status.ParseFromString(error.error_details());
  for (const auto& detail : status.details()) {
    google::rpc::ErrorInfo info;
    google::rpc::BadRequest bad;
    if (detail.UnpackTo(&info)) words += " " + info.reason();
    if (!detail.UnpackTo(&bad)) continue;
    std::vector<std::string> fields;
    for (const auto& violation : bad.field_violations()) fields.push_back(violation.field());
    std::sort(fields.begin(), fields.end());
    for (const auto& field : fields) words += " " + field;
  }
  return words;
}

void must(const grpc::Status& status) {
  if (!status.ok()) throw std::runtime_error(failure(status) + ": " + status.error_message());
}

std::string request_id() {
  static std::random_device chance;
  std::string id = "xxxxxxxx-xxxx-4xxx-8xxx-xxxxxxxxxxxx";
  for (char& digit : id)
    if (digit == 'x') digit = "0123456789abcdef"[chance() % 16];
  return id;
}

std::int64_t hours(int count) { return std::time(nullptr) + count * 3600; }

api::Lease wanted(const api::Terms& terms) {
  api::Lease lease;
  lease.set_node_count(1);
  (*lease.mutable_amounts())["cpu"] = 100;
  lease.mutable_duration()->set_seconds(60);
  (*lease.mutable_labels())["story"] = variable("STORY_RUN");
  *lease.mutable_terms() = terms;
  return lease;
}

api::CreateLeaseRequest asking(const api::Lease& lease, const std::string& id) {
  api::CreateLeaseRequest request;
  *request.mutable_lease() = lease;
  request.set_request_id(id);
  return request;
}

// A request that does no more than name a lease.
template <typename Request>
Request named(const std::string& name) {
  Request request;
  request.set_name(name);
  return request;
}

std::string state(const api::Lease& lease) {
  return api::Lease::State_Name(lease.state()).substr("STATE_"s.size());
}

class Story {
 public:
  // The server shows a certificate of our authority, and we show it ours.
  Story() : admission_(admission_with({pem("AUTHORITY"), pem("PRIVATE_KEY"), pem("CERTIFICATE")})) {}

  void tell();

 private:
  using Stub = api::AdmissionService::Stub;

  template <typename Request, typename Response>
  using Call = grpc::Status (Stub::*)(grpc::ClientContext*, const Request&, Response*);

  // Returns the answer to a call that must succeed.
  template <typename Request, typename Response>
  Response answer(Call<Request, Response> call, const Request& request, milliseconds limit) {
    Within context(limit);
    Response response;
    must((admission_.get()->*call)(&context, request, &response));
    return response;
  }

  template <typename Request, typename Response>
  void refused(const std::string& step, Call<Request, Response> call, const Request& request,
               milliseconds limit = soon) {
    Within context(limit);
    Response response;
    say(step, failure((admission_.get()->*call)(&context, request, &response)));
  }

  api::Lease create(const api::Lease& lease, const std::string& id) {
    return answer(&Stub::CreateLease, asking(lease, id), soon).lease();
  }

  void cancel(const std::string& name) {
    answer(&Stub::CancelLease, named<api::CancelLeaseRequest>(name), soon);
  }

  void watch(const std::string& name, const std::function<bool(const api::Lease&)>& enough);

  static constexpr milliseconds soon = seconds(10);
  static constexpr milliseconds later = seconds(70);

  std::unique_ptr<Stub> admission_;
  std::string resume_token_;
  std::vector<std::int64_t> versions_;
};

// Follows a lease from the last token until it has seen enough, then cuts the stream.
void Story::watch(const std::string& name, const std::function<bool(const api::Lease&)>& enough) {
  auto request = named<api::WatchLeasesRequest>(name);
  request.set_resume_token(resume_token_);
  Within context(later);
  auto events = admission_->WatchLeases(&context, request);
  api::WatchLeasesResponse event;
  while (events->Read(&event)) {
    resume_token_ = event.resume_token();
    if (!event.has_lease()) continue;
    versions_.push_back(event.lease().version());
    if (enough(event.lease())) break;
  }
  context.TryCancel();
  events->Finish();
}

void Story::tell() {
  // All four kinds of lease.
  api::Terms immediate, best_effort, advance_terms, deadline_terms;
  immediate.mutable_immediate();
  best_effort.mutable_best_effort();
  advance_terms.mutable_advance()->mutable_start_time()->set_seconds(hours(20));
  deadline_terms.mutable_deadline()->mutable_deadline_time()->set_seconds(hours(30));
  const std::vector<std::pair<std::string, api::Terms>> kinds = {
      {"immediate", immediate},
      {"best effort", best_effort},
      {"advance", advance_terms},
      {"deadline", deadline_terms},
  };
  std::map<std::string, std::string> created;
  std::string id;
  for (const auto& [kind, terms] : kinds) {
    id = request_id();
    const auto lease = create(wanted(terms), id);
    created[kind] = lease.name();
    say("create " + kind, state(lease));
  }
  const auto advance = created["advance"], deadline = created["deadline"];

  // A repeat is the same lease; the same id for something else is refused.
  auto asked = wanted(deadline_terms);
  const auto again = create(asked, id).name();
  say("repeat", again == deadline ? "the same lease" : again);
  asked.set_node_count(2);
  refused("reuse", &Stub::CreateLease, asking(asked, id));

  // A page at a time.
  api::ListLeasesRequest list;
  list.set_page_size(2);
  (*list.mutable_labels())["story"] = variable("STORY_RUN");
  int found = 0, pages = 0;
  while (pages == 0 || !list.page_token().empty()) {
    const auto page = answer(&Stub::ListLeases, list, soon);
    found += page.leases_size();
    pages += 1;
    list.set_page_token(page.next_page_token());
    if (resume_token_.empty()) resume_token_ = page.resume_token();
  }
  say("list", std::to_string(found) + " leases in " + std::to_string(pages) + " pages");

  // Watch one lease, cut the stream in the middle, go on from the last token.
  api::Terms tomorrow;
  tomorrow.mutable_advance()->mutable_start_time()->set_seconds(hours(21));
  const auto one = create(wanted(tomorrow), request_id()).name();
  watch(one, [](const api::Lease&) { return true; });
  auto booked = named<api::WaitLeaseRequest>(one);
  booked.add_states(api::Lease::STATE_SCHEDULED);
  answer(&Stub::WaitLease, booked, later);
  cancel(one);
  watch(one, [](const api::Lease& lease) { return lease.state() == api::Lease::STATE_CANCELLED; });
  bool whole = versions_.size() > 2;
  std::ostringstream seen;
  for (std::size_t i = 0; i < versions_.size(); ++i) {
    whole = whole && versions_[i] == static_cast<std::int64_t>(i) + 1;
    seen << (i == 0 ? "" : " ") << versions_[i];
  }
  say("watch", "cut and resumed: " + (whole ? "no gap, no repeat" : seen.str()));

  // Why is it where it is?
  const auto why = named<api::ExplainLeaseRequest>(advance);
  const auto explained = answer(&Stub::ExplainLease, why, soon);
  say("explain", explained.sentences_size() > 0 ? "in sentences" : "in silence");

  // Change what somebody else has changed.
  api::UpdateLeaseRequest stale;
  stale.mutable_lease()->set_name(advance);
  stale.mutable_lease()->set_etag("v0");
  stale.mutable_lease()->mutable_duration()->set_seconds(120);
  refused("extend with a stale etag", &Stub::UpdateLease, stale);

  // Give it up.
  cancel(advance);
  const auto end = named<api::WaitLeaseRequest>(advance);
  say("cancel", state(answer(&Stub::WaitLease, end, later).lease()));

  // What is wrong, all of it.
  api::CreateLeaseRequest bad;
  (*bad.mutable_lease()->mutable_amounts())["cpu"] = 100;
  *bad.mutable_lease()->mutable_terms() = best_effort;
  refused("invalid", &Stub::CreateLease, bad);
  refused("not found", &Stub::GetLease, named<api::GetLeaseRequest>("leases/nobody-s"));

  // No longer than we like, and not without a key.
  refused("deadline", &Stub::WaitLease, named<api::WaitLeaseRequest>(deadline), 300ms);
  grpc::ClientContext keyless;
  api::GetLeaseResponse response;
  const auto get = named<api::GetLeaseRequest>(deadline);
  say("no key", failure(admission_->GetLease(&keyless, get, &response)));

  // A key alone does not even reach the service.
  Within limit(soon);
  const auto told = admission_with({pem("AUTHORITY"), "", ""})->GetLease(&limit, get, &response);
  say("no certificate", told.ok() ? "OK" : told.error_details().empty() ? "refused" : "answered");

  for (const auto& lease : created) cancel(lease.second);
}

int main() {
  Story().tell();
}
