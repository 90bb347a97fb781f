package vllmengine

import (
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	enginev1 "github.com/surehand/surehand/contracts/gen/surehand/engine/v1"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/rpc"
	"github.com/surehand/surehand/transferd/client"
)

const helloWithin = 5 * time.Second

// connector is the link to the connector inside vLLM. There is one at a time.
type connector struct {
	log      *slog.Logger
	listener *client.Listener

	mu     sync.Mutex
	conn   *client.Peer // nil while there is none
	hello  *enginev1.ConnectorHello
	beside *enginev1.ConnectorBeside
	load   *enginev1.ConnectorLoad
	known  chan struct{} // closed once a connector beside an attached transferd was seen
	once   sync.Once
	orders chan *enginev1.FrontMessage
	// changes has a word when the connector left, or said what it stands beside.
	changes chan struct{}
}

func newConnector(listener *client.Listener, log *slog.Logger) *connector {
	return &connector{log: log, listener: listener, known: make(chan struct{}), orders: make(chan *enginev1.FrontMessage, maxOrders), changes: make(chan struct{}, 1),
		hello: &enginev1.ConnectorHello{}, beside: &enginev1.ConnectorBeside{}, load: &enginev1.ConnectorLoad{}}
}

// serve takes one connector after the other until the listener is closed. said
// is called with each of its words, gone when it is gone.
func (c *connector) serve(said func(*enginev1.ConnectorMessage) error, gone func()) error {
	for {
		conn, err := c.listener.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return nil
			}
			return handoff.Errorf(handoff.CodeInternal, "connector socket: %s", err)
		}
		err = c.attend(conn, said)
		c.log.Warn("the engine's connector left", "error", err.Error())
		gone()
	}
}

// attend reads one connector to its end.
func (c *connector) attend(conn *client.Peer, said func(*enginev1.ConnectorMessage) error) error {
	defer func() { _ = conn.Close() }() // whatever is unsent is for nobody
	if err := conn.SetReadDeadline(time.Now().Add(helloWithin)); err != nil {
		return err
	}
	first := new(enginev1.ConnectorMessage)
	if err := conn.Receive(first); err != nil {
		return err
	}
	if err := c.greet(conn, first.GetHello()); err != nil {
		return err
	}
	if err := conn.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	over := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() { c.write(conn, over) })
	defer writer.Wait()
	defer close(over)
	defer c.leave()
	for {
		m := new(enginev1.ConnectorMessage)
		if err := conn.Receive(m); err != nil {
			return err
		}
		c.note(m)
		if err := said(m); err != nil {
			return err // a connector that we do not understand is left
		}
	}
}

func (c *connector) greet(conn *client.Peer, hello *enginev1.ConnectorHello) error {
	if hello == nil {
		return handoff.Errorf(handoff.CodeInvalid, "the connector's first word is no hello")
	}
	fingerprint, err := rpc.FromDigest("layout", hello.GetLayout())
	if err != nil {
		return err
	}
	if len(hello.GetDescribed()) > 0 {
		d, err := rpc.DecodeLayout(hello.GetDescribed())
		if err != nil {
			return err
		}
		if is := d.Layout.Fingerprint(); is != fingerprint {
			return handoff.Errorf(handoff.CodeInvalid, "the connector describes layout %s and names %s", is, fingerprint)
		}
	}
	if hello.GetRevision() == "" || hello.GetBlockTokens() == 0 || hello.GetBlocks() == 0 || hello.GetMaxTokens() == 0 {
		return handoff.Errorf(handoff.CodeInvalid, "the connector's hello lacks a revision, its blocks or its context")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conn, c.hello = conn, hello
	c.log.Info("the engine's connector is here", "engine", hello.GetEngine(), "version", hello.GetVersion(), "blocks", hello.GetBlocks())
	return nil
}

func (c *connector) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conn, c.load = nil, &enginev1.ConnectorLoad{}
	c.beside = &enginev1.ConnectorBeside{Node: c.beside.GetNode(), Incarnation: c.beside.GetIncarnation(), PeerAddress: c.beside.GetPeerAddress(), PeerProtocol: c.beside.GetPeerProtocol()}
	c.changed()
}

// changed is called under the lock.
func (c *connector) changed() {
	select {
	case c.changes <- struct{}{}:
	default: // one is there that nobody took yet
	}
}

func (c *connector) note(m *enginev1.ConnectorMessage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch body := m.GetBody().(type) {
	case *enginev1.ConnectorMessage_Beside:
		c.beside = body.Beside
		c.changed()
	case *enginev1.ConnectorMessage_Load:
		c.load = body.Load
	}
	if c.beside.GetAttached() {
		c.once.Do(func() { close(c.known) })
	}
}

// state is what the connector said last.
func (c *connector) state() (hello *enginev1.ConnectorHello, beside *enginev1.ConnectorBeside, load *enginev1.ConnectorLoad, here bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hello, c.beside, c.load, c.conn != nil
}

func (c *connector) peer() string {
	_, beside, _, _ := c.state()
	return beside.GetPeerAddress()
}

// wake tells an idle engine that a request, or the end of one, is on its way.
func (c *connector) wake() {
	c.order(&enginev1.FrontMessage{Body: &enginev1.FrontMessage_Wake{Wake: &enginev1.FrontWake{}}})
}

// drop tells it that nobody wants an attempt's source any more. It is safe to
// repeat, and for an attempt that has no source.
func (c *connector) drop(a handoff.Attempt) {
	c.order(&enginev1.FrontMessage{Body: &enginev1.FrontMessage_Drop{Drop: &enginev1.FrontDrop{Attempt: rpc.Attempt(a)}}})
}

// order hands a word to the writer, or drops it when there is no connector: what
// it was about ended with the engine.
func (c *connector) order(m *enginev1.FrontMessage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn == nil {
		return
	}
	select {
	case c.orders <- m:
	default: // it does not read
		_ = c.conn.Close() // attend sees it
	}
}

func (c *connector) write(conn *client.Peer, over <-chan struct{}) {
	for {
		select {
		case m := <-c.orders:
			if err := conn.Send(m); err != nil {
				_ = conn.Close() // attend sees it
				return
			}
		case <-over:
			return
		}
	}
}

// close ends the listening and the connector that is here.
func (c *connector) close() error {
	c.mu.Lock()
	conn := c.conn
	c.mu.Unlock()
	err := c.listener.Close()
	if conn != nil {
		err = errors.Join(err, conn.Close())
	}
	return err
}
