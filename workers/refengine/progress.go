package refengine

import (
	"context"
	"sync"
	"time"

	enginev1 "github.com/surehand/surehand/contracts/gen/surehand/engine/v1"
)

// progress is what a prefill tells those who follow it. newProgress.
type progress struct {
	mu      *sync.Mutex
	changed chan struct{}
	opened  *enginev1.PrefillOpened
	tokens  uint32
	sealed  *enginev1.PrefillSealed
	err     error
}

func newProgress() progress { return progress{mu: new(sync.Mutex), changed: make(chan struct{})} }

func (p *progress) change(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *progress) open(capability []byte, address string, tokens int) {
	p.change(func() {
		p.opened = &enginev1.PrefillOpened{Capability: capability, SourceAddress: address, PromptTokens: uint32(tokens)}
	})
}

func (p *progress) advance(tokens int) { p.change(func() { p.tokens = uint32(tokens) }) }

func (p *progress) seal(tokens, cached int, took time.Duration) {
	p.change(func() {
		p.sealed = &enginev1.PrefillSealed{PromptTokens: uint32(tokens), CachedTokens: uint32(cached), ComputeMicros: uint64(took.Microseconds())}
	})
}

// fail ends a run that is not sealed. A seal that was acknowledged stays true,
// whatever became of the source since.
func (p *progress) fail(err error) {
	p.change(func() {
		if p.sealed == nil {
			p.err = better(p.err, err)
		}
	})
}

// told is what a sealed run has to tell, nil of another.
func (p *progress) told() *progress {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sealed == nil {
		return nil
	}
	out := newProgress()
	out.opened, out.tokens, out.sealed = p.opened, p.tokens, p.sealed
	return &out
}

// follow sends everything from the beginning; it returns nil once sealed.
func (p *progress) follow(ctx context.Context, send func(*enginev1.PrefillEvent) error) error {
	opened, told := false, uint32(0)
	for {
		p.mu.Lock()
		now := *p
		p.mu.Unlock()
		if now.opened != nil && !opened {
			opened = true
			if err := send(&enginev1.PrefillEvent{Event: &enginev1.PrefillEvent_Opened{Opened: now.opened}}); err != nil {
				return err
			}
		}
		if now.tokens > told {
			told = now.tokens
			if err := send(&enginev1.PrefillEvent{Event: &enginev1.PrefillEvent_Progress{Progress: &enginev1.PrefillProgress{Tokens: told}}}); err != nil {
				return err
			}
		}
		switch {
		case now.sealed != nil:
			return send(&enginev1.PrefillEvent{Event: &enginev1.PrefillEvent_Sealed{Sealed: now.sealed}})
		case now.err != nil:
			return now.err
		}
		select {
		case <-now.changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
