package refengine

import "sync"

// latch is something that happens once. newLatch.
type latch struct {
	once sync.Once
	c    chan struct{}
}

func newLatch() *latch { return &latch{c: make(chan struct{})} }

func (l *latch) set()                  { l.once.Do(func() { close(l.c) }) }
func (l *latch) done() <-chan struct{} { return l.c }
func (l *latch) isSet() bool {
	select {
	case <-l.c:
		return true
	default:
		return false
	}
}
