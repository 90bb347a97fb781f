package pull

import (
	"math/rand/v2"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/wire"
	"github.com/surehand/surehand/transferd/transport"
)

// Advance implements transport.Sink: it does what landed bytes and news allow.
func (l *loop) Advance(lane transport.Lane) error {
	l.state.Lock()
	defer l.state.Unlock()
	if err := l.verify(lane); err != nil {
		return err
	}
	return l.ask(lane)
}

// ask asks for announced pieces while the window has room. It refills when half of
// it is free, so that one READ names many pieces.
func (l *loop) ask(lane transport.Lane) error {
	window := uint64(lane.Streams()) * WindowBytes
	if l.inFlight > window/2 {
		return nil
	}
	room := min(window-l.inFlight, max(l.run.puller.credits.room(l.rail), batchBytes))
	for room > 0 && len(l.ready) > 0 {
		bytes, err := l.batch(lane, min(room, batchBytes))
		if err != nil {
			return err
		}
		room -= min(room, max(bytes, 1))
	}
	return nil
}

// batch asks for up to limit bytes, at least one piece if there is one. What will be
// read straight into D's memory is posted before.
func (l *loop) batch(lane transport.Lane, limit uint64) (bytes uint64, err error) {
	l.wanted, l.inPlace = l.wanted[:0], l.inPlace[:0]
	for len(l.ready) > 0 && len(l.wanted) < wire.MaxBatchPieces {
		r := &l.ready[0]
		if l.status[r.First] == absent {
			n := uint64(l.fit.length(r.First))
			if bytes+n > limit && len(l.wanted) > 0 {
				break
			}
			if l.fit.isUnneeded(r.First) {
				l.status[r.First] = unneeded
			} else {
				bytes += n
				l.wanted = append(l.wanted, r.First)
				l.status[r.First] = asked
				if l.fit.direct(r.First) != nil {
					l.inPlace = append(l.inPlace, r.First)
					l.status[r.First] = posted
				}
			}
		}
		r.First++
		if r.Count--; r.Count == 0 {
			l.ready = l.ready[1:]
		}
	}
	if len(l.wanted) == 0 {
		return 0, nil
	}
	if err := l.landing.Post(len(l.inPlace), l.grant); err != nil {
		return 0, err
	}
	if l.began.IsZero() {
		l.began = time.Now()
	}
	l.inFlight += bytes
	l.run.puller.credits.take(l.rail, bytes)
	return bytes, lane.Read(wire.Runs(l.wanted))
}

// verify compares what landed with what P sealed, and asks the question.
func (l *loop) verify(lane transport.Lane) error {
	if l.digests == nil || l.nonce != 0 || l.done {
		return nil
	}
	switch l.landing.State() {
	case handoff.TargetLanded:
		bad, err := l.compare()
		if err != nil || bad {
			return err
		}
		if err := l.landing.Verify(l.manifest); err != nil {
			return err
		}
	case handoff.TargetVerified: // an earlier connection was lost before the answer
	default:
		return nil
	}
	nonce := handoff.Nonce(rand.Uint64() | 1)
	if err := l.landing.Ask(nonce, l.grant); err != nil {
		return err
	}
	l.nonce = nonce
	return lane.Ask(wire.Question{Grant: l.grant, Incarnation: l.run.spec.Plan.P.Incarnation, Manifest: l.manifest, Token: l.landing.Token(), Nonce: nonce})
}

// compare takes back every landed piece whose bytes are not what P sealed.
func (l *loop) compare() (bad bool, err error) {
	if l.run.spec.Unchecked {
		return false, nil
	}
	for i, d := range l.digests {
		piece := uint32(i)
		if l.status[i] != here {
			continue
		}
		if err := l.reread(piece); err != nil {
			return true, err
		}
		if l.checks[i] == d {
			continue
		}
		for _, target := range l.fit.spoiled(piece) {
			if err := l.landing.Misverify(target); err != nil {
				return true, err
			}
		}
		bad = true
		if err := l.again(piece, "the sealed digest"); err != nil {
			return true, err
		}
	}
	return bad, nil
}

// reread takes a piece's checksum anew, of what lies in D's memory by now, where the
// daemon is told to: it landed well, and may have been changed since. A piece that
// is cut into another layout was compared where it arrived, in its slot.
func (l *loop) reread(piece uint32) (err error) {
	if l.run.puller.cfg.Reread && l.fit.bound == nil {
		l.checks[piece], err = l.landing.Reread(piece)
	}
	return err
}

// again queues a piece whose bytes differ for another read, once.
func (l *loop) again(piece uint32, from string) error {
	l.status[piece] = absent
	if l.repulls[piece]++; l.repulls[piece] > MaxRepulls {
		return handoff.Errorf(handoff.CodeIntegrity, "piece %d differs from %s after %d reads", piece, from, l.repulls[piece])
	}
	l.result.Repulled++
	l.ready = append(l.ready, wire.Run{First: piece, Count: 1})
	return nil
}
