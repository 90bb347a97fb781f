package sim

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/surehand/surehand/activities"
	"github.com/surehand/surehand/activities/engine"
	"github.com/surehand/surehand/activities/ledger"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
)

// gateway is one serving process: the reader of its client's stream, fenced by
// the real handoff.Reading, and a worker with the real steps.
type gateway struct {
	s     *Sim
	life  *life
	steps *activities.Steps
	table table // of them

	mu     sync.Mutex
	stream *stream                       // of the client's key, the latest
	runs   map[handoff.HandoffID]*stream // by run: each is asked of and told its own
	wg     sync.WaitGroup
}

// stream is what the gateway reads for its client.
type stream struct {
	reading  handoff.Reading
	reader   handoff.Reader
	in       steps.Input
	attached handoff.Attempt
	detach   context.CancelFunc
	tokens   uint32
	done     bool
	code     handoff.Code // of a failed end
	to       *connection
	heard    []handoff.Delivery
	more     chan struct{} // closed at each token, and at the end
}

func (st *stream) touch() {
	close(st.more)
	st.more = make(chan struct{})
}

func newGateway(s *Sim, name string, i handoff.Incarnation) *gateway {
	g := &gateway{s: s, life: s.newLife(name, i), table: table{}, runs: map[handoff.HandoffID]*stream{}}
	g.steps = &activities.Steps{Ledger: remoteLedger{s.ledger, s, g.life}, Engines: engines{g}, Movers: movers{g}, Readers: readers{g}, Placer: placer{g},
		Bodies: g, Attempts: activities.NewAttempts(16), Observer: g, Log: slog.New(slog.DiscardHandler), SerialBelow: promptTokens / 2,
		Local: func(at steps.ReaderAt) bool {
			return at.Reader.Process == g.life.name && at.Reader.Incarnation == g.life.incarnation
		}}
	g.steps.Register(g.table)
	g.wg.Go(func() { g.steps.RenewLeases(g.life.ctx, s.lease) })
	g.wg.Go(func() {
		for g.life.ctx.Err() == nil {
			select {
			case <-time.After(s.lease):
				g.steps.Attempts.Sweep(2 * s.lease)
			case <-g.life.ctx.Done():
			}
		}
	})
	return g
}

// stop ends the process; what it began ends by its own contexts.
func (g *gateway) stop() {
	g.life.end()
	g.mu.Lock()
	for _, st := range g.runs {
		st.detach()
	}
	g.mu.Unlock()
	go g.steps.Attempts.Close()
}

// Body implements activities.Bodies: the claim check of every process.
func (g *gateway) Body(context.Context, string, handoff.HandoffID) (activities.Body, error) {
	return activities.Body{Prompt: make([]byte, promptTokens)}, nil
}

// Step implements activities.Observer.
func (g *gateway) Step(handoff.Step, handoff.Code, time.Duration) {}

// submit begins the handoff of the client's key here, or joins it.
func (g *gateway) submit(c *connection) error {
	s := g.s
	in, err := s.client.input(g)
	if err != nil {
		return err
	}
	got, err := g.steps.Ledger.Claim(g.life.ctx, ledger.ClaimRequest{Tenant: in.Tenant, Key: in.Key, Body: in.Plan.BodyDigest,
		Handoff: in.Plan.Attempt.Handoff, Owner: g.life.name, Window: in.Window})
	switch {
	case err != nil:
		return err
	case got.State == ledger.StateSettled:
		return handoff.Errorf(handoff.CodeGone, "this key was answered: %s", got.Outcome)
	case !got.Mine:
		return g.join(c)
	}
	st := g.adopt(c, in, in.Plan.Reader)
	si := steps.StepInput{Request: in, Reader: steps.ReaderAt{Reader: in.Plan.Reader, Address: g.life.name}}
	g.wg.Go(func() { _, _ = g.steps.Prefill(g.life.ctx, si) })
	g.wg.Go(func() { _, _ = g.steps.Reserve(g.life.ctx, si) })
	g.wg.Go(func() { g.start(st, in) })
	g.wg.Go(func() { g.deadline(st, in) })
	return nil
}

func (g *gateway) adopt(c *connection, in steps.Input, r handoff.Reader) *stream {
	g.mu.Lock()
	defer g.mu.Unlock()
	st := &stream{reader: r, in: in, detach: func() {}, to: c, more: make(chan struct{})}
	st.reading.Newest(in.Plan.Attempt)
	g.stream, g.runs[in.Plan.Attempt.Handoff] = st, st
	return st
}

// start makes the request durable, and takes its first task; when it cannot be known
// to be durable, it is undone.
func (g *gateway) start(st *stream, in steps.Input) {
	var first func()
	var err error
	for range 2 {
		ctx, cancel := context.WithTimeout(g.life.ctx, 2*time.Second)
		first, err = fetch(ctx, g.s, g.life, "h", "start", in.Plan.Attempt, func(context.Context) (func(), error) { return g.s.history.begin(in, g) })
		cancel()
		if err == nil || handoff.CodeOf(err) == handoff.CodeConflict {
			break
		}
	}
	if err == nil && first != nil {
		first()
	}
	if err == nil || g.life.dead() {
		return
	}
	g.mu.Lock()
	state := st.reading.GiveUp(in.Plan.Attempt)
	g.mu.Unlock()
	if state == handoff.ReaderDelivering {
		return // only a run of ours can have committed
	}
	g.fail(st, handoff.CodeUnavailable)
	_ = g.steps.UndoHeadStart(g.life.ctx, in)
	_ = g.steps.Ledger.Unclaim(g.life.ctx, in.Tenant, in.Key, in.Plan.Attempt.Handoff)
}

// join brings another gateway's stream, or makes this one the reader of a handoff
// whose reader does not answer (rule 5c, clause 7): history names it before it reads.
func (g *gateway) join(c *connection) error {
	if done, err := g.follow(c); done {
		return err
	}
	var in steps.Input
	var st *stream
	err := g.s.call(g.life.ctx, g.life, "h", "re-attach", handoff.Attempt{}, func(context.Context) error {
		return g.s.history.reattach(func(now steps.Input, r handoff.Reader) { in, st = now, g.adopt(c, now, r) }, g)
	})
	if err == nil {
		g.wg.Go(func() { g.deadline(st, in) })
	}
	return err
}

// follow copies what the other gateway reads; done once that told anything.
func (g *gateway) follow(c *connection) (done bool, err error) {
	other := "g0"
	if g.life.name == other {
		other = "g1"
	}
	n := 0
	err = g.s.call(g.life.ctx, g.life, other, "follow", handoff.Attempt{}, func(ctx context.Context) error {
		return g.s.gateways[other].told(ctx, func(d handoff.Delivery) { n++; c.token(d.Attempt, d.Position) })
	})
	switch {
	case err == nil:
		c.end(handoff.CodeNone)
		return true, nil
	case n > 0:
		c.end(handoff.CodeStreamBroken)
		return true, nil
	}
	return false, nil
}

// told is the follower's side at the gateway that reads.
func (g *gateway) told(ctx context.Context, each func(handoff.Delivery)) error {
	for i := 0; ; {
		g.mu.Lock()
		st := g.stream
		if st == nil || st.done && st.code != handoff.CodeNone {
			g.mu.Unlock()
			return handoff.Errorf(handoff.CodeGone, "no stream is held here")
		}
		fresh, done, more := st.heard[i:], st.done, st.more
		g.mu.Unlock()
		for _, d := range fresh {
			each(d)
		}
		if i += len(fresh); done {
			return nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return unavailable("the follower left")
		}
	}
}

// cancel is the client's.
func (g *gateway) cancel() {
	g.mu.Lock()
	st := g.stream
	g.mu.Unlock()
	g.leave(st, handoff.CodeCancelled)
}

// leave ends the stream: it reaches the daemons at once, then history.
func (g *gateway) leave(st *stream, code handoff.Code) {
	g.mu.Lock()
	if st == nil || st.done {
		g.mu.Unlock()
		return
	}
	in := st.in
	st.reading.GiveUp(in.Plan.Attempt)
	g.mu.Unlock()
	g.fail(st, code)
	ctx, done := context.WithTimeout(g.life.ctx, g.s.lease)
	defer done()
	_, _ = g.steps.ReleaseNow(ctx, in)
	_ = g.steps.Ledger.MarkCancelled(ctx, in.Plan.Attempt.Handoff, time.Minute)
	g.insist("tell-cancel", in.Plan.Attempt, g.s.history.cancel)
}

// deadline ends a handoff that has no token in time (L1).
func (g *gateway) deadline(st *stream, in steps.Input) {
	select {
	case <-time.After(in.Deadline):
	case <-g.life.ctx.Done():
		return
	}
	g.mu.Lock()
	late := st.tokens == 0 && !st.done
	g.mu.Unlock()
	if late {
		g.leave(st, handoff.CodeDeadline)
	}
}

// insist records something in history until it is there.
func (g *gateway) insist(op string, a handoff.Attempt, fn func() error) {
	for !g.life.dead() {
		ctx, cancel := context.WithTimeout(g.life.ctx, 2*time.Second)
		err := g.s.call(ctx, g.life, "h", op, a, func(context.Context) error { return fn() })
		cancel()
		if err == nil {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (g *gateway) fail(st *stream, code handoff.Code) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if st.done {
		return
	}
	st.done, st.code = true, code
	st.touch()
	st.detach()
	g.steps.Attempts.Unkeep(st.in.Plan.Attempt)
	st.to.end(code)
}

// planned takes the newest planned attempt and reads it.
func (g *gateway) planned(p handoff.Plan, r steps.Route, token handoff.Token) error {
	g.mu.Lock()
	st := g.runs[p.Attempt.Handoff]
	switch {
	case st == nil || st.done:
		g.mu.Unlock()
		return handoff.Errorf(handoff.CodeGone, "nobody reads here")
	case p.Attempt.Epoch < st.in.Plan.Attempt.Epoch:
		g.mu.Unlock()
		return handoff.Errorf(handoff.CodeStaleEpoch, "a later epoch is planned")
	case st.attached == p.Attempt:
		g.mu.Unlock()
		return nil
	}
	if prior := st.in.Plan.Attempt; prior != p.Attempt {
		st.reading.GiveUp(prior)
		g.steps.Attempts.Unkeep(prior)
	}
	st.reading.Newest(p.Attempt)
	st.detach()
	ctx, cancel := context.WithCancel(g.life.ctx)
	st.attached, st.detach = p.Attempt, cancel
	st.in.Plan, st.in.Route = p, r
	g.mu.Unlock()
	if err := g.steps.Attempts.Keep(p, r); err != nil {
		return err
	}
	g.wg.Go(func() { g.read(ctx, st, p, r, token) })
	return nil
}

func (g *gateway) read(ctx context.Context, st *stream, p handoff.Plan, r steps.Route, token handoff.Token) {
	e, _ := engines{g}.Engine(r.D.Engine)
	var err error
	for try := range 4 {
		g.mu.Lock()
		from := uint32(0)
		if st.reading.State(p.Attempt) == handoff.ReaderDelivering {
			from = st.tokens
		}
		g.mu.Unlock()
		err = e.Attach(ctx, p, token, from, func(ev engine.DecodeEvent) error { return g.deliver(st, p, ev) })
		if err == nil || ctx.Err() != nil || handoff.CodeOf(err) != handoff.CodeUnavailable {
			break
		}
		time.Sleep(50 * time.Millisecond << try)
	}
	if err != nil && ctx.Err() == nil {
		g.lost(st, p, err)
	}
}

// deliver writes one token to the client, if the fence lets it.
func (g *gateway) deliver(st *stream, p handoff.Plan, ev engine.DecodeEvent) error {
	g.mu.Lock()
	mayWrite := st.reading.Deliver(p.Attempt) || g.s.omits(readerRecords)
	isNext := ev.Position == st.tokens
	if st.done || !mayWrite || !isNext {
		g.mu.Unlock()
		g.s.reached("a byte of an attempt given up is dropped")
		return handoff.Errorf(handoff.CodeClosed, "given up")
	}
	st.tokens++
	st.to.token(p.Attempt, ev.Position)
	st.heard = append(st.heard, handoff.Delivery{Attempt: p.Attempt, Position: ev.Position})
	st.done = ev.Finish != ""
	st.touch()
	if st.done {
		st.to.end(handoff.CodeNone)
		g.steps.Attempts.Unkeep(p.Attempt)
	}
	end := steps.Ended{Attempt: p.Attempt, Reader: st.reader, Finish: ev.Finish, Usage: steps.Usage{Completion: st.tokens, Direct: ev.Counts.Direct}}
	g.mu.Unlock()
	if ev.Finish != "" {
		g.wg.Go(func() { g.insist("stream-ended", p.Attempt, func() error { return g.s.history.ended(end) }) })
	}
	return nil
}

// lost handles a reading that ended without the stream's end.
func (g *gateway) lost(st *stream, p handoff.Plan, cause error) {
	code := handoff.CodeOf(cause)
	g.s.say("%s %s: the stream is lost: %s", g.life.name, name(p.Attempt), code)
	g.mu.Lock()
	given := st.reading.GiveUp(p.Attempt) == handoff.ReaderGivenUp
	end := steps.Ended{Attempt: p.Attempt, Reader: st.reader, Usage: steps.Usage{Completion: st.tokens}}
	g.mu.Unlock()
	switch {
	case given && code == handoff.CodeClosed:
		g.steps.Attempts.Unkeep(p.Attempt)
		return // never committed: the workflow knows it by its own steps
	case given:
		g.steps.Attempts.Unkeep(p.Attempt)
		if code.Advice() != handoff.NewEpoch {
			code = handoff.CodeEngine
		}
	default:
		code = handoff.CodeStreamBroken
		g.fail(st, code)
	}
	end.Code = code.String()
	g.insist("stream-ended", p.Attempt, func() error { return g.s.history.ended(end) })
}

// readers asks whom history names, in this process or another.
type readers struct{ g *gateway }

func (r readers) at(ctx context.Context, at steps.ReaderAt, op string, a handoff.Attempt, fn func(*gateway) error) error {
	ask := func(context.Context) error {
		g := r.g.s.gateways[at.Address]
		if g.s.omits(readerLife) {
			g.mu.Lock()
			if g.runs[a.Handoff] == nil {
				g.runs[a.Handoff] = &stream{detach: func() {}, more: make(chan struct{}), done: true} // an empty record gives up whatever it is asked
			}
			g.mu.Unlock()
		} else if g.life.name != at.Reader.Process || g.life.incarnation != at.Reader.Incarnation {
			return handoff.Errorf(handoff.CodeStaleIncarnation, "this is another life of the reader")
		}
		return fn(g)
	}
	if r.g.life.name == at.Reader.Process && r.g.life.incarnation == at.Reader.Incarnation {
		return r.g.s.beside(ctx, r.g.life, at.Address, op, a, ask) // a process that stands still answers nobody, itself included
	}
	return r.g.s.call(ctx, r.g.life, at.Address, op, a, ask)
}

func (r readers) GiveUp(ctx context.Context, at steps.ReaderAt, a handoff.Attempt) (bool, error) {
	var said atomic.Bool
	err := r.at(ctx, at, "ask-reader", a, func(g *gateway) error {
		g.mu.Lock()
		defer g.mu.Unlock()
		st := g.runs[a.Handoff]
		if st == nil {
			return handoff.Errorf(handoff.CodeGone, "no stream is read here")
		}
		fresh := st.reading.State(a) == handoff.ReaderUndecided
		state := st.reading.GiveUp(a)
		said.Store(state == handoff.ReaderGivenUp)
		if state == handoff.ReaderGivenUp {
			if end := (steps.Ended{Attempt: a, Reader: st.reader, Code: handoff.CodeEngine.String()}); fresh {
				// Who asked may be a worker that lost the workflow to another, whose
				// decode nobody would read: history hears of it too.
				g.wg.Go(func() { g.insist("stream-ended", a, func() error { return g.s.history.ended(end) }) })
			}
			if st.attached == a {
				st.detach()
			}
			g.steps.Attempts.Unkeep(a)
			g.s.reached("a reader gave an attempt up when asked")
		}
		return nil
	})
	return said.Load(), err
}

func (r readers) Planned(ctx context.Context, at steps.ReaderAt, p handoff.Plan, route steps.Route, token handoff.Token) error {
	return r.at(ctx, at, "tell-reader", p.Attempt, func(g *gateway) error { return g.planned(p, route, token) })
}

func (r readers) Ended(ctx context.Context, at steps.ReaderAt, a handoff.Attempt, code handoff.Code, _ string) error {
	return r.at(ctx, at, "end-stream", a, func(g *gateway) error {
		g.mu.Lock()
		st := g.runs[a.Handoff]
		g.mu.Unlock()
		if st != nil {
			g.fail(st, code)
		}
		return nil
	})
}

// placer takes the first engines of the registry that are not excluded.
type placer struct{ g *gateway }

func (p placer) Place(ctx context.Context, _ steps.Input, exclude []handoff.EngineID) (handoff.Seat, handoff.Seat, steps.Route, error) {
	all, err := fetch(ctx, p.g.s, p.g.life, "r", "list-engines", handoff.Attempt{}, func(ctx context.Context) ([]ledger.Registered, error) {
		return p.g.s.ledger.Engines(ctx)
	})
	if err != nil {
		return handoff.Seat{}, handoff.Seat{}, steps.Route{}, err
	}
	pick := func(names ...string) *ledger.Registered {
		for _, n := range names {
			for i := range all {
				if e := &all[i]; string(e.Node) == n && !slices.Contains(exclude, e.ID) {
					return e
				}
			}
		}
		return nil
	}
	pe, de := pick("p", "p1"), pick("d0", "d1", "d2")
	if pe == nil || de == nil {
		return handoff.Seat{}, handoff.Seat{}, steps.Route{}, handoff.Errorf(handoff.CodeCapacity, "no engine is left")
	}
	return seat(pe), seat(de), route(pe, de), nil
}

func seat(e *ledger.Registered) handoff.Seat {
	return handoff.Seat{Engine: e.ID, Node: e.Node, Incarnation: e.NodeIncarnation}
}

func route(p, d *ledger.Registered) steps.Route {
	at := func(e *ledger.Registered) steps.Endpoint {
		return steps.Endpoint{Engine: e.Address, Control: e.Control, Peer: e.Peer}
	}
	return steps.Route{P: at(p), D: at(d), Blocks: pieces, Total: blocks}
}

func (placer) Begin(handoff.Plan, uint32) error          { return nil }
func (placer) Step(handoff.Attempt, handoff.Step, error) {}
