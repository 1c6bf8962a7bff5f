// The conformance story in Go; see examples/README.md.
package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"os"
	"sort"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	api "tenure.example/stubs/tenure/admission/v1"
)

var labels = map[string]string{"story": os.Getenv("STORY_RUN")}

func say(step, outcome string) { fmt.Printf("%s\t%s\n", step, outcome) }

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// within returns a context with the caller's key and a time limit.
func within(limit time.Duration) context.Context {
	ctx := metadata.AppendToOutgoingContext(context.Background(), "authorization", "Bearer "+os.Getenv("TENURE_API_KEY"))
	ctx, cancel := context.WithTimeout(ctx, limit)
	context.AfterFunc(ctx, cancel)
	return ctx
}

// failure returns the code, the reason and the fields that an error names.
func failure(err error) string {
	if err == nil {
		return "OK"
	}
	told := status.Convert(err)
	words := []string{upperSnake(told.Code())}
	for _, detail := range told.Details() {
		switch detail := detail.(type) {
		case *errdetails.ErrorInfo:
			words = append(words, detail.Reason)
		case *errdetails.BadRequest:
			var fields []string
			for _, violation := range detail.FieldViolations {
				fields = append(fields, violation.Field)
			}
			sort.Strings(fields)
			words = append(words, fields...)
		}
	}
	return strings.Join(words, " ")
}

// upperSnake writes a code as the other languages do: NOT_FOUND for NotFound.
func upperSnake(code codes.Code) string {
	var text strings.Builder
	for i, letter := range code.String() {
		if i > 0 && letter >= 'A' && letter <= 'Z' {
			text.WriteByte('_')
		}
		text.WriteRune(letter)
	}
	return strings.ToUpper(text.String())
}

func requestID() string {
	b := make([]byte, 16)
	must(rand.Read(b))
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

func hours(count int) *timestamppb.Timestamp {
	return timestamppb.New(time.Now().Add(time.Duration(count) * time.Hour).Truncate(time.Second))
}

func wanted(terms *api.Terms) *api.Lease {
	return &api.Lease{
		NodeCount: 1,
		Amounts:   map[string]int64{"cpu": 100},
		Duration:  durationpb.New(time.Minute),
		Labels:    labels,
		Terms:     terms,
	}
}

func state(lease *api.Lease) string { return strings.TrimPrefix(lease.State.String(), "STATE_") }

func connect(tls *tls.Config) *grpc.ClientConn {
	return must(grpc.NewClient(os.Getenv("TENURE_ADMISSION_ADDRESS"), grpc.WithTransportCredentials(credentials.NewTLS(tls))))
}

func main() {
	// The server shows a certificate of our authority, and we show it ours.
	authorities := x509.NewCertPool()
	authorities.AppendCertsFromPEM(must(os.ReadFile(os.Getenv("TENURE_TLS_AUTHORITY"))))
	ours := must(tls.LoadX509KeyPair(os.Getenv("TENURE_TLS_CERTIFICATE"), os.Getenv("TENURE_TLS_PRIVATE_KEY")))
	channel := connect(&tls.Config{RootCAs: authorities, Certificates: []tls.Certificate{ours}})
	defer channel.Close()
	admission := api.NewAdmissionServiceClient(channel)
	create := func(lease *api.Lease, id string) *api.Lease {
		return must(admission.CreateLease(within(10*time.Second), &api.CreateLeaseRequest{Lease: lease, RequestId: id})).Lease
	}
	cancel := func(name string) {
		must(admission.CancelLease(within(10*time.Second), &api.CancelLeaseRequest{Name: name}))
	}

	// All four kinds of lease.
	created := map[string]*api.Lease{}
	var asked *api.Lease
	var id string
	for _, kind := range []struct {
		name  string
		terms *api.Terms
	}{
		{"immediate", &api.Terms{Kind: &api.Terms_Immediate{Immediate: &api.ImmediateTerms{}}}},
		{"best effort", &api.Terms{Kind: &api.Terms_BestEffort{BestEffort: &api.BestEffortTerms{}}}},
		{"advance", &api.Terms{Kind: &api.Terms_Advance{Advance: &api.AdvanceTerms{StartTime: hours(20)}}}},
		{"deadline", &api.Terms{Kind: &api.Terms_Deadline{Deadline: &api.DeadlineTerms{DeadlineTime: hours(30)}}}},
	} {
		asked, id = wanted(kind.terms), requestID()
		created[kind.name] = create(asked, id)
		say("create "+kind.name, state(created[kind.name]))
	}

	// A repeat is the same lease; the same id for something else is refused.
	if again := create(asked, id); again.Name == created["deadline"].Name {
		say("repeat", "the same lease")
	} else {
		say("repeat", again.Name)
	}
	other := proto.CloneOf(asked)
	other.NodeCount = 2
	_, err := admission.CreateLease(within(10*time.Second), &api.CreateLeaseRequest{Lease: other, RequestId: id})
	say("reuse", failure(err))

	// A page at a time.
	found, pages, pageToken, resumeToken := 0, 0, "", ""
	for pages == 0 || pageToken != "" {
		page := must(admission.ListLeases(within(10*time.Second), &api.ListLeasesRequest{PageSize: 2, PageToken: pageToken, Labels: labels}))
		found, pages, pageToken = found+len(page.Leases), pages+1, page.NextPageToken
		if resumeToken == "" {
			resumeToken = page.ResumeToken
		}
	}
	say("list", fmt.Sprintf("%d leases in %d pages", found, pages))

	// Watch one lease, cut the stream in the middle, go on from the last token.
	one := create(wanted(&api.Terms{Kind: &api.Terms_Advance{Advance: &api.AdvanceTerms{StartTime: hours(21)}}}), requestID())
	var versions []int64
	watch := func(enough func(*api.Lease) bool) {
		ctx, cut := context.WithCancel(within(30 * time.Second))
		defer cut()
		events := must(admission.WatchLeases(ctx, &api.WatchLeasesRequest{ResumeToken: resumeToken, Name: one.Name}))
		for {
			event, err := events.Recv()
			if err == io.EOF {
				return
			}
			must(event, err)
			resumeToken = event.ResumeToken
			if event.Lease == nil {
				continue
			}
			versions = append(versions, event.Lease.Version)
			if enough(event.Lease) {
				return
			}
		}
	}
	watch(func(*api.Lease) bool { return true })
	must(admission.WaitLease(within(time.Minute), &api.WaitLeaseRequest{Name: one.Name, States: []api.Lease_State{api.Lease_STATE_SCHEDULED}}))
	cancel(one.Name)
	watch(func(lease *api.Lease) bool { return lease.State == api.Lease_STATE_CANCELLED })
	whole := len(versions) > 2
	for i, version := range versions {
		whole = whole && version == int64(i)+1
	}
	if whole {
		say("watch", "cut and resumed: no gap, no repeat")
	} else {
		say("watch", fmt.Sprint("cut and resumed: ", versions))
	}

	// Why is it where it is?
	if explained := must(admission.ExplainLease(within(10*time.Second), &api.ExplainLeaseRequest{Name: created["advance"].Name})); len(explained.Sentences) > 0 {
		say("explain", "in sentences")
	} else {
		say("explain", "in silence")
	}

	// Change what somebody else has changed.
	stale := &api.Lease{Name: created["advance"].Name, Etag: "v0", Duration: durationpb.New(2 * time.Minute)}
	_, err = admission.UpdateLease(within(10*time.Second), &api.UpdateLeaseRequest{Lease: stale})
	say("extend with a stale etag", failure(err))

	// Give it up.
	cancel(created["advance"].Name)
	say("cancel", state(must(admission.WaitLease(within(70*time.Second), &api.WaitLeaseRequest{Name: created["advance"].Name})).Lease))

	// What is wrong, all of it.
	bad := &api.Lease{Amounts: map[string]int64{"cpu": 100}, Terms: &api.Terms{Kind: &api.Terms_BestEffort{BestEffort: &api.BestEffortTerms{}}}}
	_, err = admission.CreateLease(within(10*time.Second), &api.CreateLeaseRequest{Lease: bad})
	say("invalid", failure(err))
	_, err = admission.GetLease(within(10*time.Second), &api.GetLeaseRequest{Name: "leases/nobody-s"})
	say("not found", failure(err))

	// No longer than we like, and not without a key.
	_, err = admission.WaitLease(within(300*time.Millisecond), &api.WaitLeaseRequest{Name: created["deadline"].Name})
	say("deadline", failure(err))
	_, err = admission.GetLease(context.Background(), &api.GetLeaseRequest{Name: created["deadline"].Name})
	say("no key", failure(err))

	// A key alone does not even reach the service.
	stranger := connect(&tls.Config{RootCAs: authorities})
	defer stranger.Close()
	_, err = api.NewAdmissionServiceClient(stranger).GetLease(within(10*time.Second), &api.GetLeaseRequest{Name: created["deadline"].Name})
	switch {
	case err == nil:
		say("no certificate", "OK")
	case len(status.Convert(err).Details()) > 0:
		say("no certificate", "answered")
	default:
		say("no certificate", "refused")
	}

	for _, lease := range created {
		cancel(lease.Name)
	}
}
