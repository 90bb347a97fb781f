package session

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	transferv1 "github.com/surehand/surehand/contracts/gen/surehand/transfer/v1"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/layout"
	"github.com/surehand/surehand/contracts/rpc"
	"github.com/surehand/surehand/contracts/wire"
	"github.com/surehand/surehand/transferd/fence"
	"github.com/surehand/surehand/transferd/internal/flagpage"
	"github.com/surehand/surehand/transferd/internal/native"
	"github.com/surehand/surehand/transferd/internal/socket"
	"github.com/surehand/surehand/transferd/segment"
)

const (
	attachTimeout = 5 * time.Second
	sendTimeout   = 5 * time.Second
	// maxOutbox bounds what waits for an engine that does not read; past it the
	// engine counts as dead. An attempt has at most a handful of messages.
	maxOutbox = 8 * handoff.MaxTargets
)

// session is one engine's connection.
type session struct {
	server *Server
	conn   *socket.Conn
	engine *fence.Engine

	mu          sync.Mutex
	outbox      []proto.Message
	closed      bool
	attachedNow bool // the answer to the attach is queued: events may follow it
	wake        chan struct{}

	// failures are the first error of each source's announcements, which have no
	// answer of their own: Seal gives it. Only the reading goroutine touches it.
	failures map[handoff.Attempt]error
}

func newSession(s *Server, c *net.UnixConn) *session {
	return &session{server: s, conn: socket.New(c), wake: make(chan struct{}, 1), failures: map[handoff.Attempt]error{}}
}

// hangUp breaks the connection; run then ends.
func (s *session) hangUp() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	_ = s.conn.Close() // the reader sees it
	s.poke()
}

func (s *session) run() {
	log := s.server.cfg.Log
	var writer sync.WaitGroup
	writer.Go(s.write)
	err := s.serve()
	if s.engine != nil && s.server.isStopping() {
		// Not the engine's death but ours: what is committed stays visible, for
		// the next life to adopt.
	} else if s.engine != nil {
		s.server.cfg.Core.Detach(s.engine)
		s.server.remember()
		log.Info("engine detached", "engine", s.engine.ID, "error", errText(err))
	} else if err != nil && !errors.Is(err, io.EOF) {
		log.Warn("engine did not attach", "error", err)
		s.server.cfg.Refused("engine", "", err)
	}
	s.hangUp()
	writer.Wait()
}

func errText(err error) string {
	if err == nil || errors.Is(err, io.EOF) {
		return ""
	}
	return err.Error()
}

// serve attaches the engine, then answers its requests in order until it leaves.
func (s *session) serve() error {
	if err := s.attach(); err != nil {
		return err
	}
	for {
		m := new(transferv1.EngineMessage)
		if err := s.conn.Receive(m); err != nil {
			return err
		}
		reply, err := s.handle(m)
		if m.GetId() == 0 {
			continue // it asked for no answer
		}
		if err != nil {
			reply = &transferv1.DaemonMessage{Body: &transferv1.DaemonMessage_Failure{Failure: rpc.Failure(err)}}
		}
		reply.Id = m.GetId()
		s.put(reply)
	}
}

// attach takes the first message and its two descriptors. A refusal is answered,
// then the connection ends.
func (s *session) attach() error {
	if err := s.conn.Unix().SetReadDeadline(time.Now().Add(attachTimeout)); err != nil {
		return err
	}
	m := new(transferv1.EngineMessage)
	files, err := s.conn.ReceiveFirst(m)
	defer func() {
		for _, f := range files {
			_ = f.Close() // mapped, or refused; the mapping stays
		}
	}()
	if err != nil {
		return err
	}
	if err := s.conn.Unix().SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	attached, err := s.adopt(m.GetAttach(), files)
	if err != nil {
		refusal := &transferv1.DaemonMessage{Id: m.GetId(), Body: &transferv1.DaemonMessage_Failure{Failure: rpc.Failure(err)}}
		return errors.Join(err, s.conn.Send(time.Now().Add(sendTimeout), refusal))
	}
	core := s.server.cfg.Core
	s.server.cfg.Log.Info("engine attached", "engine", s.engine.ID, "memory", s.engine.Segment.Kind(), "segment_bytes", s.engine.Segment.Bytes(),
		"adopted", len(attached.Adopted), "closed", len(attached.Closed))
	s.putFirst(&transferv1.DaemonMessage{Id: m.GetId(), Body: &transferv1.DaemonMessage_Attached{Attached: &transferv1.Attached{
		Node: string(core.Node()), Incarnation: uint64(core.Incarnation()), PeerAddress: s.server.cfg.PeerAddress, PeerProtocol: wire.Version,
		Adopted: rpc.Attempts(attached.Adopted), Closed: rpc.Attempts(attached.Closed)}}})
	return nil
}

func (s *session) adopt(m *transferv1.Attach, files []*os.File) (fence.Attached, error) {
	if want := descriptors(m); m == nil || len(files) != want {
		return fence.Attached{}, handoff.Errorf(handoff.CodeInvalid, "the first message is an attach with %d descriptors, got %d", want, len(files))
	}
	if err := handoff.ValidateID("engine", m.GetEngine()); err != nil {
		return fence.Attached{}, err
	}
	fingerprint, err := rpc.FromDigest("layout", m.GetLayout())
	if err != nil {
		return fence.Attached{}, err
	}
	described, encoded, err := describe(m.GetDescribed(), fingerprint)
	if err != nil {
		return fence.Attached{}, err
	}
	if m.GetFlagSlots() == 0 || m.GetFlagSlots() > flagpage.MaxSlots {
		return fence.Attached{}, handoff.Errorf(handoff.CodeInvalid, "%d flag slots, want 1..%d", m.GetFlagSlots(), flagpage.MaxSlots)
	}
	seg, err := s.segment(m, files)
	if err != nil {
		return fence.Attached{}, err
	}
	flags, err := mapFlags(files[len(files)-1], m.GetFlagSlots())
	if err != nil {
		return fence.Attached{}, errors.Join(err, seg.Close())
	}
	e := &fence.Engine{ID: handoff.EngineID(m.GetEngine()), Revision: m.GetRevision(), Layout: fingerprint, Described: described, Encoded: encoded, Segment: seg,
		Page: flagpage.New(flags, m.GetFlagSlots()), Notify: s.notify,
		Close: func() error { return errors.Join(seg.Close(), native.Unmap(flags)) }}
	attached, err := s.server.attach(e)
	if err != nil {
		return fence.Attached{}, errors.Join(err, e.Close())
	}
	s.engine = e
	return attached, nil
}

// describe reads what a fingerprint stands for, and refuses what does not.
func describe(m *transferv1.LayoutDescription, fingerprint handoff.Digest) (*layout.Described, []byte, error) {
	if m == nil {
		return nil, nil, nil
	}
	d, err := rpc.FromLayout(m)
	if err != nil {
		return nil, nil, err
	}
	if got := d.Layout.Fingerprint(); got != fingerprint {
		return nil, nil, handoff.Errorf(handoff.CodeInvalid, "the layout that is described is %s, the one that is named %s", got, fingerprint)
	}
	encoded, err := rpc.EncodeLayout(d)
	return &d, encoded, err
}

// descriptors is how many come with an attach: only a memfd has one of its own.
func descriptors(m *transferv1.Attach) int {
	if m.GetProcessAddress() != 0 || m.GetCuda() != nil {
		return 1
	}
	return 2
}

// segment takes the engine's memory. Plain memory is of the process at the other
// end of the socket, as the kernel knows it, and of no other.
func (s *session) segment(m *transferv1.Attach, files []*os.File) (*segment.Segment, error) {
	switch {
	case m.GetCuda() != nil && m.GetProcessAddress() != 0:
		return nil, handoff.Errorf(handoff.CodeInvalid, "a segment of two kinds")
	case m.GetCuda() != nil:
		return s.device(m.GetCuda(), m.GetSegmentBytes())
	case m.GetProcessAddress() == 0:
		return s.server.memories.Map(files[0], m.GetSegmentBytes())
	}
	p, err := native.PeerProcess(s.conn.Unix())
	if err != nil {
		return nil, handoff.Errorf(handoff.CodeDenied, "%s", err)
	}
	seg, err := segment.Process(p, m.GetProcessAddress(), m.GetSegmentBytes())
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return seg, nil
}

func (s *session) device(m *transferv1.CudaMemory, bytes uint64) (*segment.Segment, error) {
	driver := s.server.cfg.CUDA
	switch {
	case driver == nil:
		return nil, handoff.Errorf(handoff.CodeDenied, "this daemon has no CUDA driver; it said why when it started")
	case len(m.GetDevice()) != len(native.CUDADevice{}) || len(m.GetHandle()) != len(native.CUDAHandle{}):
		return nil, handoff.Errorf(handoff.CodeInvalid, "a device of %d bytes and a handle of %d, want 16 and 64", len(m.GetDevice()), len(m.GetHandle()))
	}
	return segment.Device(driver, native.CUDADevice(m.GetDevice()), native.CUDAHandle(m.GetHandle()), m.GetOffset(), bytes)
}

func mapFlags(f *os.File, slots uint32) ([]byte, error) {
	bytes := uint64(slots) * flagpage.SlotBytes
	if err := native.CheckSealed(f, bytes); err != nil {
		return nil, handoff.Errorf(handoff.CodeInvalid, "flag page: %s", err)
	}
	b, err := native.Map(f, bytes)
	if err != nil {
		return nil, handoff.Errorf(handoff.CodeCapacity, "flag page: %s", err)
	}
	return b, nil
}

// put queues messages for the writer; it never blocks. The core calls it, by
// notify, under its lock.
func (s *session) put(m proto.Message) {
	s.mu.Lock()
	if len(s.outbox) >= maxOutbox {
		s.closed = true
	}
	if !s.closed {
		s.outbox = append(s.outbox, m)
	}
	s.mu.Unlock()
	s.poke()
}

// putFirst sends the answer to the attach before events that came meanwhile.
func (s *session) putFirst(m proto.Message) {
	s.mu.Lock()
	s.outbox = append([]proto.Message{m}, s.outbox...)
	s.attachedNow = true
	s.mu.Unlock()
	s.poke()
}

func (s *session) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// write sends what is queued, many messages in one call, until the session ends.
func (s *session) write() {
	for range s.wake {
		batch, closed := s.take()
		if len(batch) > 0 && s.conn.Send(time.Now().Add(sendTimeout), batch...) != nil {
			closed = true
		}
		if closed {
			_ = s.conn.Close() // the reader sees it and detaches the engine
			return
		}
	}
}

func (s *session) take() ([]proto.Message, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.attachedNow {
		return nil, s.closed
	}
	batch := s.outbox
	s.outbox = nil
	return batch, s.closed
}

func (s *session) notify(n fence.Notice) {
	cause := ""
	if n.Cause != handoff.CodeNone {
		cause = n.Cause.String()
	}
	if n.IsSource {
		s.put(&transferv1.DaemonMessage{Body: &transferv1.DaemonMessage_SourceEvent{SourceEvent: &transferv1.SourceEvent{
			Attempt: rpc.Attempt(n.Attempt), State: rpc.SourceState(n.Source), Drained: n.Drained, Cause: cause}}})
		return
	}
	s.put(&transferv1.DaemonMessage{Body: &transferv1.DaemonMessage_TargetEvent{TargetEvent: &transferv1.TargetEvent{
		Attempt: rpc.Attempt(n.Attempt), State: rpc.TargetState(n.Target), Drained: n.Drained, Cause: cause}}})
}
