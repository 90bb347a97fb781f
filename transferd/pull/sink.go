package pull

import (
	"time"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/wire"
)

// Announced implements transport.Sink.
func (l *loop) Announced(runs []wire.Run) error {
	l.state.Lock()
	defer l.state.Unlock()
	l.ready = append(l.ready, runs...)
	l.progress = time.Now()
	return nil
}

// Places implements transport.Sink: only memory that is posted is given out, and
// slots of the staging ring.
func (l *loop) Places(entries []wire.Entry, into [][]byte) ([][]byte, error) {
	l.state.Lock()
	defer l.state.Unlock()
	at := len(into)
	for _, e := range entries {
		if uint64(e.Piece) >= uint64(len(l.status)) || l.status[e.Piece] != asked && l.status[e.Piece] != posted {
			return into, handoff.Errorf(handoff.CodeInvalid, "piece %d came unasked", e.Piece)
		}
		if want := l.fit.length(e.Piece); e.Length != want {
			return into, handoff.Errorf(handoff.CodeMismatch, "piece %d has %d bytes at P, want %d", e.Piece, e.Length, want)
		}
		if l.status[e.Piece] == posted {
			into = append(into, l.fit.direct(e.Piece))
		} else {
			into = append(into, nil)
		}
		l.status[e.Piece] = arriving
	}
	l.staging.take(entries, into[at:])
	return into, nil
}

// marks name entries of a batch.
type marks [wire.MaxBatchPieces / 64]uint64

func (m *marks) set(i int)      { m[i/64] |= 1 << (i % 64) }
func (m *marks) has(i int) bool { return m[i/64]&(1<<(i%64)) != 0 }

// Landed implements transport.Sink. A piece that is not what was read, or not what
// P sealed, never lands: it is read again, once.
func (l *loop) Landed(entries []wire.Entry, places [][]byte) error {
	var torn marks // entries whose bytes are not those that TP read
	if places != nil && !l.run.spec.Unchecked {
		for i := range entries { // without the lock, while they are in the cache
			if wire.Checksum(places[i]) != entries[i].Check {
				torn.set(i)
			}
		}
	}
	l.state.Lock()
	defer l.state.Unlock()
	slot, err := l.staging.full(entries)
	if err != nil {
		return err
	}
	defer l.staging.give(slot)
	var came, bytes uint64
	for _, e := range entries {
		came += uint64(e.Length)
	}
	l.arrived(came)
	pieces, operations := make([]uint32, 0, len(entries)), 0
	for i, e := range entries {
		staged := slot != nil && slot.places[i] != nil
		if from := l.differs(e, torn.has(i)); from != "" {
			if !staged {
				l.landing.Failed(1)
			}
			if err := l.again(e.Piece, from); err != nil {
				return err
			}
			continue
		}
		l.checks[e.Piece], l.status[e.Piece] = e.Check, here
		pieces = append(pieces, e.Piece)
		if bytes += uint64(e.Length); staged {
			slot.scatter(l.fit, e.Piece, slot.places[i])
		} else {
			operations++
		}
	}
	n, err := l.write(slot)
	if err != nil {
		return err
	}
	operations += n
	l.lastByte = time.Now()
	l.progress = l.lastByte
	l.result.Bytes += bytes
	l.result.Pieces += uint32(len(pieces))
	whole := l.fit.filled(pieces)
	return l.landing.Landed(whole, operations-len(whole), bytes)
}

// arrived gives the credit of bytes back.
func (l *loop) arrived(bytes uint64) {
	bytes = min(bytes, l.inFlight)
	l.inFlight -= bytes
	l.run.puller.credits.give(l.rail, bytes)
}

// differs says from what a piece differs, empty for a good one.
func (l *loop) differs(e wire.Entry, torn bool) string {
	switch {
	case l.run.spec.Unchecked:
	case torn:
		return "what was read"
	case l.digests != nil && e.Check != l.digests[e.Piece]:
		return "the sealed digest"
	}
	return ""
}

// write scatters a slot into D's memory, posted before: a target that is over
// refuses it, and one that ends meanwhile is not drained until it is done. The
// copy itself does without the lock: its pieces are this batch's alone.
func (l *loop) write(s *slot) (operations int, err error) {
	if s == nil || len(s.to) == 0 {
		return 0, nil
	}
	operations = l.fit.touched(s.pieces)
	if err := l.landing.Post(operations, l.grant); err != nil {
		return 0, err
	}
	l.state.Unlock()
	began := time.Now()
	err = l.landing.Write(s.to, s.from)
	took := time.Since(began)
	l.state.Lock()
	l.scattering += took
	return operations, err
}

// Sealed implements transport.Sink: the manifest is the source's shape and this
// attempt with P's digests, or it is refused (S7).
func (l *loop) Sealed(s wire.Sealed) error {
	l.state.Lock()
	defer l.state.Unlock()
	m := handoff.Manifest{Attempt: l.run.spec.Plan.Attempt, Shape: l.fit.source, Digests: s.Digests}
	if err := m.Validate(); err != nil {
		return err
	}
	digest := m.Digest()
	if digest != s.Manifest || l.digests != nil && digest != l.manifest {
		return handoff.Errorf(handoff.CodeMismatch, "the manifest %s is not the sealed one, %s", digest, s.Manifest)
	}
	l.digests, l.manifest = s.Digests, digest
	l.progress = time.Now()
	return nil
}

// Answered implements transport.Sink. Only a yes to this very question counts;
// a no closes the target.
func (l *loop) Answered(a wire.Answer) error {
	l.state.Lock()
	defer l.state.Unlock()
	if l.nonce == 0 || a.Nonce != l.nonce {
		return handoff.Errorf(handoff.CodeInvalid, "an answer to another question")
	}
	l.nonce, l.progress = 0, time.Now()
	if a.Refusal != nil {
		if a.Refusal.Code.Advice() == handoff.RetrySame {
			return a.Refusal // not an answer yet (rule 8)
		}
		return handoff.Errorf(handoff.CodeNotValidated, "P says no: %s", a.Refusal)
	}
	l.result.Manifest = l.manifest
	l.result.WireMicros = uint64(max(l.lastByte.Sub(l.began), 0) / time.Microsecond)
	l.result.ScatterMicros = uint64(l.scattering / time.Microsecond)
	if err := l.landing.Yes(a.Nonce, l.grant, l.manifest, l.result); err != nil {
		return err
	}
	l.done = true
	return nil
}
