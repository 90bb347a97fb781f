package daemon_test

import (
	"crypto/sha256"
	"fmt"
	"testing"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/transferd/client"
)

// memoryKinds are the kinds of memory that this machine has.
var memoryKinds = map[string]func() (*client.Memory, error){
	"memfd":   func() (*client.Memory, error) { return client.NewMemory("segment", segment) },
	"process": func() (*client.Memory, error) { return client.NewPlainMemory(segment) },
}

// lanes give the host of P and of D.
var lanes = map[string]func(t *testing.T) (ph, dh *host){
	"local":             func(t *testing.T) (*host, *host) { h := startHost(t, "tp"); return h, h },
	"tcp":               func(t *testing.T) (*host, *host) { return startHost(t, "tp"), startHost(t, "td") },
	"tcp, four streams": func(t *testing.T) (*host, *host) { return startHost(t, "tp"), startHost(t, "td", streams(4)) },
	"tls": func(t *testing.T) (*host, *host) {
		m, _ := securePair(t)
		return m.ph, m.dh
	},
	"tls, four streams": func(t *testing.T) (*host, *host) {
		m, _ := securePair(t, streams(4))
		return m.ph, m.dh
	},
}

// outcome is what one run of the operations leaves.
type outcome struct {
	target [32]byte // of the whole segment of D, canaries included
	codes  []handoff.Code
}

// script runs the same operations over whatever lane and memory it is given:
// a whole handoff, one with a changed source, one of another shape, one undone.
func script(t *testing.T, ph *host, p *engine, dh *host, d *engine) outcome {
	var out outcome
	note := func(err error) { out.codes = append(out.codes, handoff.CodeOf(err)) }
	var moves []*move
	for range 3 {
		moves = append(moves, newMove(t, ph, p, dh, d))
	}
	for i := range d.memory.Bytes() {
		d.memory.Bytes()[i] = 0xca // poison: nothing may land outside of the target
	}
	fixed := func() *move {
		m := moves[0]
		moves = moves[1:]
		for i := range m.from {
			m.from[i], m.to[i] = uint64(2*i)*blockBytes, uint64(len(m.from)-i)*3*blockBytes
			for k := range m.source(uint32(i)) {
				m.source(uint32(i))[k] = byte(i*31 + k*7)
			}
		}
		return m
	}
	changed := fixed()
	changed.open()
	changed.announce(all()...)
	changed.source(4)[100] ^= 8
	check(t, changed.seal())
	_, err := changed.pull()
	note(err)
	_, err = changed.commit()
	note(err)

	undone := fixed()
	undone.ready()
	_, err = undone.undo()
	note(err)
	_, err = undone.pull()
	note(err)

	whole := fixed()
	whole.ready()
	_, err = whole.pull()
	note(err)
	_, err = whole.commit()
	note(err)
	if !whole.isEqual() {
		t.Error("bytes differ")
	}
	out.target = sha256.Sum256(d.memory.Bytes())
	return out
}

// Metamorphic: every lane and kind of memory, given the same operations, leaves
// the same bytes and the same classes of errors.
func TestEveryLaneAndMemoryLeavesTheSame(t *testing.T) {
	var first *outcome
	for lane, hosts := range lanes {
		for pk, pm := range memoryKinds {
			for dk, dm := range memoryKinds {
				t.Run(fmt.Sprintf("%s/%s-%s", lane, pk, dk), func(t *testing.T) {
					ph, dh := hosts(t)
					a, err := pm()
					check(t, err)
					b, err := dm()
					check(t, err)
					got := script(t, ph, attachMemory(t, ph.cfg.EngineSocket, "p2", a), dh, attachMemory(t, dh.cfg.EngineSocket, "d2", b))
					if first == nil {
						first = &got
						return
					}
					if got.target != first.target || fmt.Sprint(got.codes) != fmt.Sprint(first.codes) {
						t.Fatalf("codes %v, first %v, equal bytes %v", got.codes, first.codes, got.target == first.target)
					}
				})
			}
		}
	}
}

// An engine whose plain memory goes away under a transfer costs an error, never
// the daemon.
func TestPlainMemoryThatIsUnmappedIsATypedError(t *testing.T) {
	ph, dh := startHost(t, "tp"), startHost(t, "td")
	plain, err := client.NewPlainMemory(segment)
	check(t, err)
	p := attachMemory(t, ph.cfg.EngineSocket, "p1", plain)
	m := newMove(t, ph, p, dh, attach(t, dh.cfg.EngineSocket, "d1"))
	m.ready()
	check(t, plain.Close())
	_, err = m.pull()
	wantCode(t, err, handoff.CodeEngine)
	m.neverVisible()
	m.d.await(t, client.TargetDrained, m.plan.Attempt)
}
