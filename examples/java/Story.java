// The conformance story in Java; see examples/README.md.

import com.google.protobuf.Duration;
import com.google.protobuf.InvalidProtocolBufferException;
import com.google.protobuf.Timestamp;
import com.google.rpc.BadRequest;
import com.google.rpc.ErrorInfo;
import io.grpc.Context;
import io.grpc.Grpc;
import io.grpc.Metadata;
import io.grpc.StatusRuntimeException;
import io.grpc.TlsChannelCredentials;
import io.grpc.protobuf.StatusProto;
import io.grpc.stub.MetadataUtils;
import java.io.File;
import java.io.IOException;
import java.time.Instant;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import java.util.function.Predicate;
import java.util.function.Supplier;
import java.util.stream.LongStream;
import tenure.admission.v1.Admission.CancelLeaseRequest;
import tenure.admission.v1.Admission.CreateLeaseRequest;
import tenure.admission.v1.Admission.ExplainLeaseRequest;
import tenure.admission.v1.Admission.GetLeaseRequest;
import tenure.admission.v1.Admission.ListLeasesRequest;
import tenure.admission.v1.Admission.UpdateLeaseRequest;
import tenure.admission.v1.Admission.WaitLeaseRequest;
import tenure.admission.v1.Admission.WatchLeasesRequest;
import tenure.admission.v1.AdmissionServiceGrpc;
import tenure.admission.v1.AdmissionServiceGrpc.AdmissionServiceBlockingStub;
import tenure.admission.v1.LeaseOuterClass.AdvanceTerms;
import tenure.admission.v1.LeaseOuterClass.BestEffortTerms;
import tenure.admission.v1.LeaseOuterClass.DeadlineTerms;
import tenure.admission.v1.LeaseOuterClass.ImmediateTerms;
import tenure.admission.v1.LeaseOuterClass.Lease;
import tenure.admission.v1.LeaseOuterClass.Terms;

public final class Story {
  private final AdmissionServiceBlockingStub keyless;
  private final AdmissionServiceBlockingStub admission;
  private final AdmissionServiceBlockingStub stranger;
  private final Map<String, String> labels = Map.of("story", System.getenv("STORY_RUN"));
  private final List<Long> versions = new ArrayList<>();
  private String resumeToken = "";

  private Story(
      AdmissionServiceBlockingStub keyless, AdmissionServiceBlockingStub stranger, String key) {
    var headers = new Metadata();
    headers.put(Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER), "Bearer " + key);
    this.keyless = keyless;
    var shown = MetadataUtils.newAttachHeadersInterceptor(headers);
    admission = keyless.withInterceptors(shown);
    this.stranger = stranger.withInterceptors(shown);
  }

  private AdmissionServiceBlockingStub within(long milliseconds) {
    return admission.withDeadlineAfter(milliseconds, TimeUnit.MILLISECONDS);
  }

  private AdmissionServiceBlockingStub soon() {
    return within(10_000);
  }

  private AdmissionServiceBlockingStub later() {
    return within(70_000);
  }

  private static void say(String step, String outcome) {
    System.out.println(step + "\t" + outcome);
  }

  /** Returns the code, the reason and the fields that an error names. */
  private static String failure(StatusRuntimeException error) {
    var words = new ArrayList<>(List.of(error.getStatus().getCode().name()));
    try {
      for (var detail : StatusProto.fromThrowable(error).getDetailsList()) {
        if (detail.is(ErrorInfo.class)) {
          words.add(detail.unpack(ErrorInfo.class).getReason());
        } else if (detail.is(BadRequest.class)) {
          var bad = detail.unpack(BadRequest.class);
          bad.getFieldViolationsList().stream().map(it -> it.getField()).sorted().forEach(words::add);
        }
      }
    } catch (InvalidProtocolBufferException unreadable) {
      words.add(unreadable.getMessage());
    }
    return String.join(" ", words);
  }

  private static void refused(String step, Supplier<?> call) {
    try {
      call.get();
      say(step, "OK");
    } catch (StatusRuntimeException error) {
      say(step, failure(error));
    }
  }

  private static Duration seconds(long seconds) {
    return Duration.newBuilder().setSeconds(seconds).build();
  }

  private static Timestamp hours(int count) {
    var then = Instant.now().getEpochSecond() + count * 3600L;
    return Timestamp.newBuilder().setSeconds(then).build();
  }

  private Lease wanted(Terms.Builder terms) {
    return Lease.newBuilder()
        .setNodeCount(1)
        .putAmounts("cpu", 100)
        .setDuration(seconds(60))
        .putAllLabels(labels)
        .setTerms(terms)
        .build();
  }

  private Lease create(Lease lease, String requestId) {
    var request = CreateLeaseRequest.newBuilder().setLease(lease).setRequestId(requestId);
    return soon().createLease(request.build()).getLease();
  }

  private void cancel(String name) {
    soon().cancelLease(CancelLeaseRequest.newBuilder().setName(name).build());
  }

  private static String state(Lease lease) {
    return lease.getState().name().replaceFirst("^STATE_", "");
  }

  /** Follows a lease until it has seen enough; cancelling the context is the cut. */
  private void watch(String name, Predicate<Lease> enough) {
    var request = WatchLeasesRequest.newBuilder().setResumeToken(resumeToken).setName(name).build();
    try (var cut = Context.current().withCancellation()) {
      cut.run(() -> {
        var events = later().watchLeases(request);
        while (events.hasNext()) {
          var event = events.next();
          resumeToken = event.getResumeToken();
          if (!event.hasLease()) continue;
          versions.add(event.getLease().getVersion());
          if (enough.test(event.getLease())) return;
        }
      });
    }
  }

  private void tell() {
    // All four kinds of lease.
    var kinds = new LinkedHashMap<String, Terms.Builder>();
    var advanceTerms = AdvanceTerms.newBuilder().setStartTime(hours(20));
    var deadlineTerms = DeadlineTerms.newBuilder().setDeadlineTime(hours(30));
    kinds.put("immediate", Terms.newBuilder().setImmediate(ImmediateTerms.newBuilder()));
    kinds.put("best effort", Terms.newBuilder().setBestEffort(BestEffortTerms.newBuilder()));
    kinds.put("advance", Terms.newBuilder().setAdvance(advanceTerms));
    kinds.put("deadline", Terms.newBuilder().setDeadline(deadlineTerms));
    var created = new LinkedHashMap<String, String>();
    var requestId = "";
    for (var kind : kinds.entrySet()) {
      requestId = UUID.randomUUID().toString();
      var lease = create(wanted(kind.getValue()), requestId);
      created.put(kind.getKey(), lease.getName());
      say("create " + kind.getKey(), state(lease));
    }
    var advance = created.get("advance");
    var deadline = created.get("deadline");

    // A repeat is the same lease; the same id for something else is refused.
    var asked = wanted(kinds.get("deadline"));
    var again = create(asked, requestId).getName();
    say("repeat", again.equals(deadline) ? "the same lease" : again);
    var other = asked.toBuilder().setNodeCount(2);
    var reused = CreateLeaseRequest.newBuilder().setLease(other).setRequestId(requestId).build();
    refused("reuse", () -> soon().createLease(reused));

    // A page at a time.
    var list = ListLeasesRequest.newBuilder().setPageSize(2).putAllLabels(labels);
    int found = 0;
    int pages = 0;
    while (pages == 0 || !list.getPageToken().isEmpty()) {
      var page = soon().listLeases(list.build());
      found += page.getLeasesCount();
      pages += 1;
      list.setPageToken(page.getNextPageToken());
      if (resumeToken.isEmpty()) resumeToken = page.getResumeToken();
    }
    say("list", found + " leases in " + pages + " pages");

    // Watch one lease, cut the stream in the middle, go on from the last token.
    var tomorrow = Terms.newBuilder().setAdvance(AdvanceTerms.newBuilder().setStartTime(hours(21)));
    var one = create(wanted(tomorrow), UUID.randomUUID().toString()).getName();
    watch(one, lease -> true);
    var booked = WaitLeaseRequest.newBuilder().setName(one).addStates(Lease.State.STATE_SCHEDULED);
    later().waitLease(booked.build());
    cancel(one);
    watch(one, lease -> lease.getState() == Lease.State.STATE_CANCELLED);
    var all = LongStream.rangeClosed(1, versions.size()).boxed().toList();
    var whole = versions.size() > 2 && versions.equals(all);
    say("watch", "cut and resumed: " + (whole ? "no gap, no repeat" : versions));

    // Why is it where it is?
    var why = ExplainLeaseRequest.newBuilder().setName(advance).build();
    var explained = soon().explainLease(why);
    say("explain", explained.getSentencesCount() > 0 ? "in sentences" : "in silence");

    // Change what somebody else has changed.
    var longer = Lease.newBuilder().setName(advance).setEtag("v0").setDuration(seconds(120));
    var stale = UpdateLeaseRequest.newBuilder().setLease(longer).build();
    refused("extend with a stale etag", () -> soon().updateLease(stale));

    // Give it up.
    cancel(advance);
    var end = WaitLeaseRequest.newBuilder().setName(advance).build();
    say("cancel", state(later().waitLease(end).getLease()));

    // What is wrong, all of it.
    var bestEffort = Terms.newBuilder().setBestEffort(BestEffortTerms.newBuilder());
    var wrong = Lease.newBuilder().putAmounts("cpu", 100).setTerms(bestEffort);
    var bad = CreateLeaseRequest.newBuilder().setLease(wrong).build();
    refused("invalid", () -> soon().createLease(bad));
    var nobody = GetLeaseRequest.newBuilder().setName("leases/nobody-s").build();
    refused("not found", () -> soon().getLease(nobody));

    // No longer than we like, and not without a key.
    var wait = WaitLeaseRequest.newBuilder().setName(deadline).build();
    refused("deadline", () -> within(300).waitLease(wait));
    var get = GetLeaseRequest.newBuilder().setName(deadline).build();
    refused("no key", () -> keyless.getLease(get));

    // A key alone does not even reach the service.
    say("no certificate", answerToStranger(get));

    created.values().forEach(this::cancel);
  }

  private String answerToStranger(GetLeaseRequest get) {
    try {
      stranger.withDeadlineAfter(10, TimeUnit.SECONDS).getLease(get);
      return "OK";
    } catch (StatusRuntimeException error) {
      return StatusProto.fromThrowable(error).getDetailsCount() > 0 ? "answered" : "refused";
    }
  }

  private static File pem(String part) {
    return new File(System.getenv("TENURE_TLS_" + part));
  }

  public static void main(String[] arguments) throws IOException {
    var address = System.getenv("TENURE_ADMISSION_ADDRESS");
    // The server shows a certificate of our authority, and we show it ours.
    var trusting = TlsChannelCredentials.newBuilder().trustManager(pem("AUTHORITY")).build();
    var ours =
        TlsChannelCredentials.newBuilder()
            .trustManager(pem("AUTHORITY"))
            .keyManager(pem("CERTIFICATE"), pem("PRIVATE_KEY"))
            .build();
    var channel = Grpc.newChannelBuilder(address, ours).build();
    var strange = Grpc.newChannelBuilder(address, trusting).build();
    try {
      var keyless = AdmissionServiceGrpc.newBlockingStub(channel);
      var stranger = AdmissionServiceGrpc.newBlockingStub(strange);
      new Story(keyless, stranger, System.getenv("TENURE_API_KEY")).tell();
    } finally {
      channel.shutdownNow();
      strange.shutdownNow();
    }
  }
}
