package sim

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/surehand/surehand/activities/ledger"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
)

// client asks once with a key, and asks again through the other gateway when
// its connection breaks. It listens to its latest connection only.
type client struct {
	s  *Sim
	in steps.Input

	mu     sync.Mutex
	conn   *connection
	got    []handoff.Delivery
	over   bool
	code   handoff.Code // CodeNone for a whole stream
	asked  time.Time    // of the latest connection
	worst  time.Duration
	again  int
	cancel bool
}

// connection is one HTTP answer under way.
type connection struct {
	c     *client
	g     *gateway
	ended chan handoff.Code // one value
	once  sync.Once
}

func newClient(s *Sim) *client { return &client{s: s} }

// input is the workflow's input as gateway g would put it, if the ledger knows engines.
func (c *client) input(g *gateway) (steps.Input, error) {
	at := func(name string) ledger.Registered {
		all, err := c.s.ledger.Engines(context.Background())
		c.s.must(err, "engines")
		for _, e := range all {
			if string(e.Node) == name {
				return e
			}
		}
		return ledger.Registered{}
	}
	p, d := at("p"), at("d0")
	if p.ID == "" || d.ID == "" {
		return steps.Input{}, unavailable("no engine is registered")
	}
	nonce := handoff.Nonce(0xa + len(g.life.name) + int(g.life.name[1]) + 16*c.again)
	in := steps.Input{Tenant: "t", ID: "k", Key: "key", Asks: true, AsksAgain: true, Model: model, Revision: revision, ReaderAddress: g.life.name, PromptTokens: promptTokens,
		Sampling: steps.Sampling{MaxTokens: answer}, Record: steps.RecordRequest, Deadline: deadline, Decode: 5 * time.Minute, Lease: c.s.lease,
		Window: time.Hour, NoAttributes: true, Long: c.s.c.Seed%4 == longs, Route: route(&p, &d)}
	in.Plan = handoff.Plan{Attempt: handoff.Attempt{Handoff: handoff.HandoffID(fmt.Sprintf("k.%x", uint64(nonce))), Epoch: 1, Nonce: nonce}, P: seat(&p), D: seat(&d),
		Reader: handoff.Reader{Process: g.life.name, Incarnation: g.life.incarnation, Number: 1}, BodyDigest: handoff.Digest{1}}
	return in, nil
}

// tries of a client that comes again.
const tries = 6

func (c *client) run() {
	for try := range tries {
		g := c.s.gateways[[]string{"g0", "g1"}[try%2]]
		if g.life.dead() {
			time.Sleep(500 * time.Millisecond)
			continue
		}
		conn := &connection{c: c, g: g, ended: make(chan handoff.Code, 1)}
		c.mu.Lock()
		c.conn, c.asked, c.again = conn, time.Now(), try
		c.mu.Unlock()
		code := handoff.CodeNone
		if err := g.submit(conn); err != nil {
			code = handoff.CodeOf(err)
		} else {
			select {
			case code = <-conn.ended:
			case <-g.life.ctx.Done():
				code = handoff.CodeUnavailable
			case <-c.patience():
				code = handoff.CodeDeadline
				c.s.tooLate()
			}
		}
		c.mu.Lock()
		c.worst = max(c.worst, time.Since(c.asked))
		tokens := len(c.got)
		c.mu.Unlock()
		c.s.say("c: %s after %d tokens through %s", code, tokens, g.life.name)
		if code != handoff.CodeUnavailable || tokens > 0 || try == tries-1 || c.cancel {
			c.end(code)
			return
		}
		time.Sleep(200 * time.Millisecond)
	}
	c.end(handoff.CodeUnavailable)
}

// patience ends when L1 is broken: what stands still on purpose is added.
func (c *client) patience() <-chan struct{} {
	out := make(chan struct{})
	began := time.Now()
	go func() {
		defer close(out)
		for {
			c.s.mu.Lock()
			borne, closed := c.s.borne, c.s.closed
			c.s.mu.Unlock()
			if closed || c.isOver() || time.Since(began) > deadline+tolerance+borne {
				return
			}
			time.Sleep(time.Second)
		}
	}()
	return out
}

// tolerance is what L1 allows beyond the deadline, and a decode's own time.
const tolerance = 2*time.Second + 10*time.Second

func (c *client) end(code handoff.Code) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over, c.code = true, code
}

func (c *client) isOver() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.over
}

// token takes a token that came over a connection.
func (n *connection) token(a handoff.Attempt, position uint32) {
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	if n.c.conn != n && !n.c.s.omits(clientLeaves) {
		n.c.s.reached("a displaced connection's token is not taken")
		return
	}
	n.c.got = append(n.c.got, handoff.Delivery{Attempt: a, Position: position})
	n.c.s.say("c: token %d of %s", position, name(a))
}

func (n *connection) end(code handoff.Code) { n.once.Do(func() { n.ended <- code }) }

// leave is the client's cancel.
func (c *client) leave() {
	c.mu.Lock()
	c.cancel = true
	n := c.conn
	c.mu.Unlock()
	if n != nil {
		go n.g.cancel()
	}
}

// comeAgain drops the connection, without a cancel, and asks through another.
func (c *client) comeAgain() {
	c.mu.Lock()
	n := c.conn
	c.conn = nil
	c.mu.Unlock()
	if n != nil {
		n.end(handoff.CodeUnavailable)
	}
}

func (c *client) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.over {
		return fmt.Sprintf("%d tokens so far", len(c.got))
	}
	return fmt.Sprintf("%d tokens, %s", len(c.got), c.code)
}
