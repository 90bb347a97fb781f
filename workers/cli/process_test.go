package cli

import (
	"context"
	"encoding/hex"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/surehand/surehand/activities/ledger"
	enginev1 "github.com/surehand/surehand/contracts/gen/surehand/engine/v1"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/workers/access"
)

// told is a writer that says when the first line came.
type told struct {
	once sync.Once
	line chan string
}

func (w *told) Write(p []byte) (int, error) {
	w.once.Do(func() { w.line <- string(p) })
	return len(p), nil
}

func TestTheStoreForgetsWhatHasExpired(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	root := newRoot(newEngine(nil))
	out := &told{line: make(chan string, 1)}
	root.SetArgs([]string{"store", "--listen", "127.0.0.1:0"})
	root.SetOut(out)
	done := make(chan error, 1)
	go func() { done <- root.ExecuteContext(ctx) }()
	_, address, _ := strings.Cut(strings.TrimSuffix(<-out.line, "}\n"), `"redis":"`)
	client := redis.NewClient(&redis.Options{Addr: strings.SplitN(address, `"`, 2)[0]})
	for k, lasts := range map[string]time.Duration{"k": 100 * time.Millisecond, "stays": time.Hour} {
		if err := client.Set(t.Context(), k, "v", lasts).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for deadline := time.Now().Add(10 * time.Second); client.Exists(t.Context(), "k").Val() != 0; <-time.After(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it never expires")
		}
	}
	if got := client.Get(t.Context(), "stays").Val(); got != "v" {
		t.Fatal(got)
	}
	client.Close()
	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestTheStoreStaysOnLoopback(t *testing.T) {
	if status, _, errs := command("", "store", "--listen", "0.0.0.0:0"); status != 1 || !strings.Contains(errs, "loopback only") {
		t.Fatal(status, errs)
	}
}

func TestServeRefusesWhatIsUnsafe(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"plaintext HTTP":     {[]string{"--listen", "0.0.0.0:0", "--grpc", ""}, "not a loopback address"},
		"plaintext gRPC":     {[]string{"--grpc", "0.0.0.0:0", "--listen", ""}, "not a loopback address"},
		"plaintext Temporal": {[]string{"--listen", "", "--grpc", "", "--temporal", "temporal.example:7233"}, "--temporal-tls"},
		"plaintext Redis":    {[]string{"--listen", "", "--grpc", "", "--redis", "redis://redis.example:6379"}, "without TLS"},
		"no Temporal":        {[]string{"--listen", "", "--grpc", "", "--temporal", ""}, "--temporal is missing"},
		"half a certificate": {[]string{"--listen", "", "--grpc", "", "--tls-cert", "x"}, "needs its key"},
		"missing keys":       {[]string{"--access", "/no/such/file"}, "access"},
		"believes everybody": {[]string{"--listen", "", "--grpc", "0.0.0.0:0"}, "--access"},
	} {
		status, _, errs := command("", append([]string{"serve"}, c.args...)...)
		if status != 1 || !strings.Contains(errs, c.want) {
			t.Errorf("%s: %d %s", name, status, errs)
		}
	}
}

func TestADrawnKeyComesWithItsDigest(t *testing.T) {
	status, out, errs := command("", "key")
	lines := strings.Fields(out)
	if status != 0 || len(lines) != 2 || !strings.HasPrefix(lines[0], "sk-") {
		t.Fatal(status, out, errs)
	}
	sum := access.Digest(lines[0])
	if lines[1] != "sha256:"+hex.EncodeToString(sum[:]) {
		t.Fatal(out)
	}
}

// registryStub counts registrations and refuses when told to.
type registryStub struct {
	ledger.Registry
	mu      sync.Mutex
	refuse  error
	seen    []ledger.Engine
	left    []handoff.EngineID
	arrived chan struct{}
}

func (r *registryStub) Register(_ context.Context, e ledger.Engine, _ time.Duration) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, e)
	select {
	case r.arrived <- struct{}{}:
	default:
	}
	return r.refuse
}

func (r *registryStub) Deregister(_ context.Context, e handoff.EngineID, _ handoff.Incarnation) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left = append(r.left, e)
	return nil
}

type engineStub struct {
	attached atomic.Bool
	life     atomic.Uint64
	changes  chan struct{}
}

func (e *engineStub) Changes() <-chan struct{} { return e.changes }

func (e *engineStub) Attached() bool { return e.attached.Load() }
func (e *engineStub) Description() *enginev1.Description {
	return &enginev1.Description{Engine: "p1", Role: enginev1.Role_ROLE_PREFILL, Model: "tiny", Node: "p1", NodeIncarnation: 3 + e.life.Load(), ProcessIncarnation: 9,
		ControlAddress: "127.0.0.1:1", Address: "127.0.0.1:2", Blocks: 8, BlockTokens: 16, MaxTokens: 100, BlocksFree: 5}
}

func TestAnEngineIsRegisteredWhileItServes(t *testing.T) {
	r, e := &registryStub{arrived: make(chan struct{}, 1), refuse: handoff.Errorf(handoff.CodeUnavailable, "away")}, &engineStub{}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- (&announcer{registry: r, engine: e, log: slog.New(slog.NewTextHandler(io.Discard, nil))}).run(ctx)
	}()
	<-r.arrived // without a transferd, and with a store that is away
	e.attached.Store(true)
	r.mu.Lock()
	r.refuse = nil
	r.mu.Unlock()
	<-r.arrived
	<-r.arrived
	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	first, last := r.seen[0], r.seen[len(r.seen)-1]
	if !first.Cordoned || last.Cordoned || last.Role != ledger.RolePrefill || last.Load.BlocksFree != 5 || last.Validate() != nil {
		t.Fatalf("%+v %+v", first, last)
	}
	if len(r.left) != 1 || r.left[0] != "p1" {
		t.Fatal(r.left)
	}
}

// Another life of the transferd is told in the moment it changes, not with the next
// heartbeat; nothing else is told between heartbeats, and nobody looks for it.
func TestAnotherLifeOfTheTransferdIsRegisteredAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, e := &registryStub{}, &engineStub{changes: make(chan struct{}, 1)}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- (&announcer{registry: r, engine: e, log: slog.New(slog.DiscardHandler)}).run(ctx)
		}()
		seen := func(n int) ledger.Engine {
			t.Helper()
			synctest.Wait()
			r.mu.Lock()
			defer r.mu.Unlock()
			if len(r.seen) != n {
				t.Fatalf("%d registrations, not %d", len(r.seen), n)
			}
			return r.seen[n-1]
		}
		seen(1)
		time.Sleep(registrationEvery - time.Nanosecond)
		seen(1)
		for i := range 3 {
			e.life.Add(1)
			e.attached.Store(i%2 == 0)
			e.changes <- struct{}{}
			if now := seen(2 + i); now.NodeIncarnation != handoff.Incarnation(4+i) || now.Cordoned != (i%2 != 0) {
				t.Fatalf("%+v", now)
			}
		}
		time.Sleep(time.Nanosecond)
		seen(5) // the heartbeat that was due
		stop()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	})
}

func TestAnEngineWhoseNameIsTakenStops(t *testing.T) {
	r := &registryStub{arrived: make(chan struct{}, 1), refuse: handoff.Errorf(handoff.CodeStaleIncarnation, "a later process")}
	err := (&announcer{registry: r, engine: &engineStub{}, log: slog.New(slog.DiscardHandler)}).run(t.Context())
	if handoff.CodeOf(err) != handoff.CodeStaleIncarnation {
		t.Fatal(err)
	}
}
