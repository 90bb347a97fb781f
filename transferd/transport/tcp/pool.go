package tcp

import (
	"sync"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
)

// Limits of what is kept between attempts.
const (
	maxIdlePeer = 8   // connections to one life of one daemon
	maxIdle     = 256 // to all
	clientIdle  = 20 * time.Second
	serverIdle  = 2 * clientIdle // later than the client: its take seldom loses a race
	// maxAge bounds a connection's life, so that a certificate that is not renewed
	// stops being good for new attempts.
	maxAge = 10 * time.Minute
)

// key is whom a kept connection leads to: another life is another key.
type key struct {
	address     string
	node        handoff.NodeID
	incarnation handoff.Incarnation
}

// connection is a greeted stream; it serves one attempt at a time, so destroying
// it is always the destruction of one grant's way and of no other's (rule 10).
type connection struct {
	stream *stream
	born   time.Time
	timer  *time.Timer // closes it while it is idle
}

// pool keeps connections whose last attempt ended with FINISHED. Nothing is asked
// for on them, so nothing can land from them.
type pool struct {
	mu     sync.Mutex
	idle   map[key][]*connection // the latest last
	count  int
	closed bool
}

// put keeps c, or closes it when there are enough or it is old.
func (p *pool) put(k key, c *connection) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.count >= maxIdle || len(p.idle[k]) >= maxIdlePeer || time.Since(c.born) > maxAge ||
		c.stream.reader.Buffered() > 0 || c.stream.conn.SetDeadline(time.Time{}) != nil {
		c.stream.close()
		return
	}
	if p.idle == nil {
		p.idle = map[key][]*connection{}
	}
	p.idle[k] = append(p.idle[k], c)
	p.count++
	c.timer = time.AfterFunc(clientIdle, func() { p.expire(k, c) })
}

// take gives the connection that was used last, nil for none.
func (p *pool) take(k key) *connection {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.idle[k])
	if n == 0 {
		return nil
	}
	c := p.idle[k][n-1]
	p.drop(k, n-1)
	c.timer.Stop() // an expire that began already finds nothing
	return c
}

func (p *pool) drop(k key, i int) {
	list := append(p.idle[k][:i:i], p.idle[k][i+1:]...)
	if p.count--; len(list) == 0 {
		delete(p.idle, k)
		return
	}
	p.idle[k] = list
}

func (p *pool) expire(k key, c *connection) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, other := range p.idle[k] {
		if other == c {
			p.drop(k, i)
			c.stream.close()
			return
		}
	}
}

func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, list := range p.idle {
		for _, c := range list {
			c.timer.Stop()
			c.stream.close()
		}
	}
	p.idle, p.count = nil, 0
}
