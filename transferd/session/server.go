// Package session is the daemon's side of the engine socket: a Unix socket of
// mode 0600 whose peers must have the daemon's own user id. Each connection is
// one engine; its end is the engine's death.
package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/transferd/fence"
	"github.com/surehand/surehand/transferd/internal/native"
	"github.com/surehand/surehand/transferd/segment"
)

// MaxConnections bounds the connections that have not attached yet, together
// with those that have.
const MaxConnections = 2 * fence.MaxEngines

const acceptPause = 50 * time.Millisecond // while descriptors or memory are short

// Config of a server.
type Config struct {
	Core        *fence.Core
	PeerAddress string // told to engines
	Log         *slog.Logger
	Remember    func([]handoff.EngineID) error // called before each attach and after each detach
	CUDA        *native.CUDA                   // nil: engines with device memory are refused
	// Refused is told of connections and attaches that are refused.
	Refused func(side, peer string, why error)
}

// Server accepts engines.
type Server struct {
	cfg      Config
	listener *net.UnixListener

	memories segment.Book // of attached engines

	recording sync.Mutex // held while the engines are recorded

	mu       sync.Mutex
	sessions map[*session]struct{}
	wg       sync.WaitGroup
}

// Listen makes the socket; a leftover of an earlier life is replaced, a socket
// that somebody still answers on is not.
func Listen(path string, cfg Config) (*Server, error) {
	if c, err := net.Dial("unix", path); err == nil {
		return nil, errors.Join(fmt.Errorf("engine socket %s: somebody serves it already", path), c.Close())
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("engine socket: %w", err)
	}
	l, err := native.ListenPrivate(path)
	if err != nil {
		return nil, fmt.Errorf("engine socket: %w", err)
	}
	return &Server{cfg: cfg, listener: l, sessions: map[*session]struct{}{}}, nil
}

// Serve accepts until ctx ends, then closes the socket and every session.
func (s *Server) Serve(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { s.closeAll() })
	defer stop()
	defer s.wg.Wait()
	for {
		c, err := s.listener.AcceptUnix()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				return c.Close()
			}
			return nil
		case native.IsPassing(err):
			s.cfg.Log.Warn("engine socket: accept", "error", err)
			select {
			case <-time.After(acceptPause):
			case <-ctx.Done():
			}
			continue
		case err != nil:
			return fmt.Errorf("engine socket: %w", err)
		}
		if err := s.admit(c); err != nil {
			s.cfg.Log.Warn("engine connection refused", "error", err)
			s.cfg.Refused("engine", "", err)
			if err := c.Close(); err != nil {
				s.cfg.Log.Warn("close", "error", err)
			}
		}
	}
}

// admit checks the peer before anything of it is read.
func (s *Server) admit(c *net.UnixConn) error {
	uid, err := native.PeerUser(c)
	if err != nil {
		return err
	}
	if err := sameUser(uid, os.Getuid()); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sessions == nil || len(s.sessions) >= MaxConnections {
		return handoff.Errorf(handoff.CodeCapacity, "limit of %d engine connections", MaxConnections)
	}
	n := newSession(s, c)
	s.sessions[n] = struct{}{}
	s.wg.Go(func() {
		n.run()
		s.mu.Lock()
		delete(s.sessions, n)
		s.mu.Unlock()
	})
	return nil
}

func sameUser(peer uint32, own int) error {
	if int64(peer) != int64(own) {
		return handoff.Errorf(handoff.CodeDenied, "peer has user id %d, the daemon %d", peer, own)
	}
	return nil
}

func (s *Server) closeAll() {
	_ = s.listener.Close() // Serve's accept returns; nobody can act on more
	s.mu.Lock()
	open := s.sessions
	s.sessions = nil
	s.mu.Unlock()
	for n := range open {
		n.hangUp()
	}
}

func (s *Server) isStopping() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sessions == nil
}

// attach records the engine, then attaches it: the next life must know whom to
// wait for. A folder that cannot be written, because the disk is full, refuses the
// engine and says why; the engine tries again.
func (s *Server) attach(e *fence.Engine) (fence.Attached, error) {
	s.recording.Lock()
	defer s.recording.Unlock()
	ids := append(s.cfg.Core.Engines(), e.ID)
	slices.Sort(ids)
	if err := s.cfg.Remember(slices.Compact(ids)); err != nil {
		return fence.Attached{}, handoff.Errorf(handoff.CodeUnavailable, "the engine cannot be recorded: %s", err)
	}
	return s.cfg.Core.Attach(e)
}

// remember records who is left. What it cannot record costs the next life a wait
// of one lease, nothing else.
func (s *Server) remember() {
	s.recording.Lock()
	defer s.recording.Unlock()
	if err := s.cfg.Remember(s.cfg.Core.Engines()); err != nil {
		s.cfg.Log.Error("the engines could not be recorded", "error", err)
	}
}
