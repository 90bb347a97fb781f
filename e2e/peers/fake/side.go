package fake

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"
)

// sides is the channel between P and D, lines of two words: "pull ID" tells P
// that D fetched; "wait ROOM" is answered with "ready ROOM" or "lost ROOM".
type sides struct {
	mu      sync.Mutex
	conns   map[string]net.Conn
	waiters map[string]chan bool // D's, by room
	rooms   map[string]chan bool // P's, by room
}

func newSides() *sides {
	return &sides{conns: map[string]net.Conn{}, waiters: map[string]chan bool{}, rooms: map[string]chan bool{}}
}

// Bounds of the channel.
const (
	sideDial = time.Second
	sideWait = time.Minute
)

// pull tells P; a P that is gone holds nothing.
func (s *sides) pull(at string, id int64) { _ = s.send(at, "pull "+strconv.FormatInt(id, 10)+"\n") }

func (s *sides) send(at, line string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.conns[at]
	if c == nil {
		var err error
		if c, err = net.DialTimeout("tcp", at, sideDial); err != nil {
			return err
		}
		s.conns[at] = c
		go s.hear(at, c)
	}
	_, err := io.WriteString(c, line)
	return err
}

// hear reads what P answers until it is gone; then whoever waits has lost.
func (s *sides) hear(at string, c net.Conn) {
	lines := bufio.NewScanner(c)
	for lines.Scan() {
		word, room, _ := strings.Cut(lines.Text(), " ")
		s.mu.Lock()
		if w := s.waiters[room]; w != nil {
			delete(s.waiters, room)
			w <- word == "ready"
		}
		s.mu.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, at)
	for room, w := range s.waiters {
		delete(s.waiters, room)
		w <- false
	}
}

// wait is D's: until P has computed the room's prompt; false: it never will.
func (s *sides) wait(ctx context.Context, at, room string) bool {
	w := make(chan bool, 1)
	s.mu.Lock()
	s.waiters[room] = w
	s.mu.Unlock()
	if s.send(at, "wait "+room+"\n") != nil {
		return false
	}
	select {
	case ok := <-w:
		return ok
	case <-ctx.Done():
	case <-time.After(sideWait):
	}
	return false
}

func (s *sides) room(name string) chan bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rooms[name] == nil {
		s.rooms[name] = make(chan bool, 1)
	}
	return s.rooms[name]
}

// ready is P's: its computation ended.
func (s *sides) ready(room string, ok bool) {
	select {
	case s.room(room) <- ok:
	default: // told before
	}
}

// serve is P's end of the channel.
func (s *sides) serve(l net.Listener, release func(int64)) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go s.answer(c, release)
	}
}

func (s *sides) answer(c net.Conn, release func(int64)) {
	var write sync.Mutex
	lines := bufio.NewScanner(c)
	for lines.Scan() {
		word, arg, _ := strings.Cut(lines.Text(), " ")
		switch word {
		case "pull":
			if id, err := strconv.ParseInt(arg, 10, 64); err == nil {
				release(id)
			}
		case "wait":
			go func() {
				said := "lost"
				if <-s.room(arg) {
					said = "ready"
				}
				s.mu.Lock()
				delete(s.rooms, arg)
				s.mu.Unlock()
				write.Lock()
				defer write.Unlock()
				fmt.Fprintf(c, "%s %s\n", said, arg)
			}()
		}
	}
}
