package pull

import (
	"time"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/wire"
)

// Announced implements transport.Sink.
func (l *loop) Announced(runs []wire.Run) error {
	l.ready = append(l.ready, runs...)
	l.progress = time.Now()
	return nil
}

// Places implements transport.Sink: only memory that is posted is given out.
func (l *loop) Places(entries []wire.Entry, into [][]byte) ([][]byte, error) {
	for _, e := range entries {
		if uint64(e.Piece) >= uint64(len(l.status)) || l.status[e.Piece] != asked {
			return into, handoff.Errorf(handoff.CodeInvalid, "piece %d came unasked", e.Piece)
		}
		if e.Length != l.landing.Length(e.Piece) {
			return into, handoff.Errorf(handoff.CodeMismatch, "piece %d has %d bytes at P, %d at D", e.Piece, e.Length, l.landing.Length(e.Piece))
		}
		l.status[e.Piece] = arriving
	}
	l.staged = l.staged[:0]
	if len(entries) > 0 && l.landing.View(entries[0].Piece) == nil {
		l.staged = l.landing.Places(named(entries), &l.buffer, l.staged)
		return append(into, l.staged...), nil
	}
	for _, e := range entries {
		into = append(into, l.landing.View(e.Piece))
	}
	return into, nil
}

func named(entries []wire.Entry) []uint32 {
	out := make([]uint32, len(entries))
	for i, e := range entries {
		out[i] = e.Piece
	}
	return out
}

// Landed implements transport.Sink. A piece that is not what was read, or not
// what P sealed, never lands: it is read again, once.
func (l *loop) Landed(entries []wire.Entry, places [][]byte) error {
	pieces := make([]uint32, 0, len(entries))
	var good [][]byte // of pieces, where they wait to be written
	var bytes uint64
	unchecked := l.run.spec.Unchecked
	for i, e := range entries {
		l.inFlight -= min(l.inFlight, uint64(e.Length))
		check := e.Check
		if places != nil && !unchecked {
			check = wire.Checksum(places[i])
		}
		from := ""
		switch {
		case unchecked:
		case check != e.Check:
			from = "what was read"
		case l.digests != nil && check != l.digests[e.Piece]:
			from = "the sealed digest"
		}
		if from != "" {
			l.landing.Failed(1)
			if err := l.again(e.Piece, from); err != nil {
				return err
			}
			continue
		}
		l.checks[e.Piece], l.status[e.Piece] = check, here
		pieces = append(pieces, e.Piece)
		if len(l.staged) > 0 {
			good = append(good, l.staged[i])
		}
		bytes += uint64(e.Length)
	}
	if len(good) > 0 {
		if err := l.landing.Write(pieces, good); err != nil {
			return err
		}
	}
	l.lastByte = time.Now()
	l.progress = l.lastByte
	l.result.Bytes += bytes
	l.result.Pieces += uint32(len(pieces))
	return l.landing.Landed(pieces, bytes)
}

// Sealed implements transport.Sink: the manifest is this target's shape and
// attempt with P's digests, or it is refused (S7).
func (l *loop) Sealed(s wire.Sealed) error {
	m := handoff.Manifest{Attempt: l.run.spec.Plan.Attempt, Shape: l.shape, Digests: s.Digests}
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
	if err := l.landing.Yes(a.Nonce, l.grant, l.manifest, l.result); err != nil {
		return err
	}
	l.done = true
	return nil
}
