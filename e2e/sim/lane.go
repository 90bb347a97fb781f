package sim

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/wire"
	"github.com/surehand/surehand/transferd/fence"
	"github.com/surehand/surehand/transferd/transport"
)

// way is the transport between two daemons: the fence's Reading at one end, the
// pull's Sink at the other, and every frame between them in the net.
type way struct {
	s *Sim
	d *daemonSim
}

func (way) Name() string                   { return "sim" }
func (way) Reaches(transport.Target) error { return nil }

// lane is one connection. Frames of one direction keep their order.
type lane struct {
	s       *Sim
	d       *daemonSim
	at      *life
	reading *fence.Reading
	sink    transport.Sink
	attempt handoff.Attempt
	source  wire.Source

	ctx    context.Context // of the connection, seen by both ends
	cutOff context.CancelFunc
	inbox  chan func() error // what came, to be handed over by Step
	out    chan frame        // of TP
	asks   chan asked        // of TD
	once   sync.Once

	mu    sync.Mutex
	asked int // reads that TP serves now
	reads int // of them, begun and not done
}

// asked is one frame of TD on its way, and what TP does with it.
type asked struct {
	name string
	at   func()
}

// frame is one answer of TP on its way.
type frame struct {
	name   string
	damage func()
	hand   func() error
}

// Open implements transport.Transport.
func (w way) Open(ctx context.Context, t transport.Target, sink transport.Sink) (transport.Lane, error) {
	l := &lane{s: w.s, d: w.d, sink: sink, attempt: t.Attempt, inbox: make(chan func() error, 256), out: make(chan frame, 256), asks: make(chan asked, 256)}
	l.ctx, l.cutOff = context.WithCancel(context.Background())
	err := w.s.call(ctx, w.d.life, t.Address, "lane-open", t.Attempt, func(ctx context.Context) error {
		h := w.s.hosts[t.Address]
		c, life := h.core(), h.now.Load().life
		if c.Incarnation() != t.Instance {
			return handoff.Errorf(handoff.CodeStaleIncarnation, "this is another life of %s", t.Address)
		}
		if l.reading != nil {
			return nil // delivered twice
		}
		r, err := c.Admit(ctx, t.Attempt, t.Capability, fence.Holder{Node: handoff.NodeID(w.d.life.name), Incarnation: w.d.life.incarnation})
		if err != nil {
			return err
		}
		l.reading, l.at = r, life
		l.source = wire.Source{Grant: r.Grant(), Shape: r.Shape(), State: r.State()}
		if ctx.Err() != nil {
			l.cutOff() // who dialled has hung up meanwhile
		}
		context.AfterFunc(life.ctx, l.cutOff)
		context.AfterFunc(w.d.life.ctx, l.cutOff)
		w.s.lane(l, true)
		go l.serve()
		go l.pump()
		go l.pumpAsks()
		return nil
	})
	if err != nil {
		l.cutOff() // the answer was lost: TP sees the connection end
		return nil, err
	}
	return l, nil
}

// serve is TP's end: it tells what is announced and sealed until the end.
func (l *lane) serve() {
	defer func() {
		for l.busy() { // Destroy comes last, when nothing looks at the memory any more
			time.Sleep(time.Millisecond / 2)
		}
		l.s.lane(l, false)
		l.reading.Destroy()
	}()
	sealed := false
	for {
		for rest := true; rest; {
			var runs []wire.Run
			if runs, rest = l.reading.News(); len(runs) > 0 {
				l.send(frame{name: "lane-news", hand: func() error { return l.sink.Announced(runs) }})
			}
		}
		if m, ok := l.reading.Sealed(); ok && !sealed {
			sealed = true
			l.send(frame{name: "lane-sealed", hand: func() error { return l.sink.Sealed(m) }})
		}
		select {
		case <-l.reading.Changed():
		case <-l.reading.Stopped():
			why := l.reading.Why()
			l.send(frame{name: "lane-stopped", hand: func() error { return why }})
			<-l.ctx.Done()
			return
		case <-l.ctx.Done():
			return
		}
	}
}

func (l *lane) send(f frame) {
	select {
	case l.out <- f:
	case <-l.ctx.Done():
	}
}

// pump brings TP's frames over one at a time.
func (l *lane) pump() {
	for {
		select {
		case f := <-l.out:
			m := &message{point: f.name + ":answer", from: l.at.name, to: l.d.life.name, attempt: l.attempt, damage: f.damage}
			switch l.s.post(m) {
			case lost:
				l.cutOff()
				return
			default: // a frame that came twice is one: TCP sees to that
				select {
				case l.inbox <- f.hand:
				case <-l.ctx.Done():
					return
				}
			}
		case <-l.ctx.Done():
			return
		}
	}
}

// ask sends a frame to TP, which does at.
func (l *lane) ask(name string, at func()) error {
	select {
	case l.asks <- asked{name, at}:
		return nil
	case <-l.ctx.Done():
		return unavailable("the connection broke")
	}
}

// pumpAsks brings TD's frames over one at a time.
func (l *lane) pumpAsks() {
	for {
		select {
		case q := <-l.asks:
			if l.s.post(&message{point: q.name + ":ask", from: l.d.life.name, to: l.at.name, attempt: l.attempt}) == lost {
				l.cutOff()
				return
			}
			if l.ctx.Err() == nil {
				q.at()
			}
		case <-l.ctx.Done():
			return
		}
	}
}

// Name implements transport.Lane.
func (l *lane) Name() string { return "sim" }

// Source implements transport.Lane.
func (l *lane) Source() wire.Source { return l.source }

// Streams implements transport.Lane.
func (l *lane) Streams() int { return 1 }

// Read implements transport.Lane.
func (l *lane) Read(runs []wire.Run) error {
	var ps []uint32
	for _, r := range runs {
		for i := range r.Count {
			ps = append(ps, r.First+i)
		}
	}
	return l.ask("lane-read", func() { l.read(ps) })
}

// read copies pieces at TP and sends them.
func (l *lane) read(ps []uint32) {
	l.count(&l.asked, 1)
	defer l.count(&l.asked, -1)
	if err := l.reading.Begin(ps); err != nil {
		l.send(frame{name: "lane-refused", hand: func() error { return err }})
		return
	}
	l.count(&l.reads, 1)
	time.Sleep(time.Millisecond)
	var buffer []byte
	views, err := l.reading.Views(ps, nil, &buffer)
	entries := make([]wire.Entry, len(ps))
	data := make([][]byte, len(ps))
	for i, p := range ps {
		data[i] = slices.Clone(views[i])
		entries[i] = wire.Entry{Piece: p, Length: l.reading.Length(p), Check: wire.Checksum(data[i])}
	}
	l.count(&l.reads, -1)
	l.reading.Done(len(ps))
	if err != nil {
		l.cutOff()
		return
	}
	l.send(frame{name: "lane-data", damage: func() { data[0][3] ^= 0x40 }, hand: func() error {
		places, err := l.sink.Places(entries, nil)
		if err != nil {
			return err
		}
		time.Sleep(time.Millisecond) // they land by themselves, whatever happens meanwhile
		for i := range data {
			copy(places[i], data[i])
		}
		return l.sink.Landed(entries, places)
	}})
}

func (l *lane) busy() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.asked > 0
}

func (l *lane) count(n *int, by int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	*n += by
}

// Ask implements transport.Lane.
func (l *lane) Ask(q wire.Question) error {
	return l.ask("lane-question", func() {
		a := wire.Answer{Nonce: q.Nonce}
		if err := l.reading.Question(q); err != nil {
			a.Refusal = handoff.Errorf(handoff.CodeOf(err), "%v", err)
		}
		l.send(frame{name: "lane-answer", hand: func() error { return l.sink.Answered(a) }})
	})
}

// Step implements transport.Lane.
func (l *lane) Step(deadline time.Duration) error {
	t := time.NewTimer(deadline)
	defer t.Stop()
	select {
	case hand := <-l.inbox:
		return hand()
	case <-l.ctx.Done():
		return unavailable("the connection broke")
	case <-t.C:
		return handoff.Errorf(handoff.CodeProgress, "nothing came for %s", deadline)
	}
}

// Finish implements transport.Lane.
func (l *lane) Finish() error {
	return l.ask("lane-finish", func() { _ = l.reading.Finish() })
}

// Ping implements transport.Lane.
func (l *lane) Ping() error {
	return l.ask("lane-ping", func() { _, _ = l.reading.Renew(0) })
}

// Interrupt implements transport.Lane.
func (l *lane) Interrupt() { l.cutOff() }

// Close implements transport.Lane: what is still on its way goes nowhere; TP
// hears of it after what was asked before.
func (l *lane) Close() {
	l.once.Do(func() { _ = l.ask("lane-close", l.cutOff) })
}
