package gateway

import (
	"io"
	"net/http"
	"sync"
	"time"
)

// sender writes the events of one stream. A client that takes nothing for
// writeTimeout while an event is written is gone. A deadline is set only then: one
// that is left standing has HTTP/2 reset the stream between two events, however
// ready its client is, for it applies to the stream and not to a write.
type sender struct {
	w       http.ResponseWriter
	control *http.ResponseController

	mu      sync.Mutex
	writing bool
	timer   *time.Timer // made with the first event
}

func newSender(w http.ResponseWriter) *sender {
	return &sender{w: w, control: http.NewResponseController(w)}
}

// send sends what is one event, or several that are there at once.
func (s *sender) send(text []byte) error {
	return s.event(func() (int, error) { return s.w.Write(text) })
}

// sendString is send without a copy.
func (s *sender) sendString(text string) error {
	return s.event(func() (int, error) { return io.WriteString(s.w, text) })
}

func (s *sender) event(write func() (int, error)) error {
	s.set(true)
	defer s.set(false)
	if _, err := write(); err != nil {
		return err
	}
	return s.control.Flush()
}

func (s *sender) set(writing bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writing = writing
	switch {
	case !writing:
		s.timer.Stop()
	case s.timer == nil:
		s.timer = time.AfterFunc(writeTimeout, s.stalled)
	default:
		s.timer.Reset(writeTimeout)
	}
}

// stalled has the write that is under way fail. Its handler cannot return meanwhile.
func (s *sender) stalled() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.writing {
		// A writer without deadlines (a test's recorder) has no client that stalls.
		_ = s.control.SetWriteDeadline(time.Now())
	}
}
