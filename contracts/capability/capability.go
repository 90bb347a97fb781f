// Package capability is the right to read ranges of one source (S15): minted by
// the transferd that owns the memory (TP) under a key that dies with its
// incarnation, narrowed by anyone who holds it, verified by TP alone.
//
// It is an HMAC-SHA256 chain, as in macaroons: the first link covers the Right,
// each further link covers one narrower range under the link before. Whoever
// holds a capability can add a link; nobody without the key can take one away.
package capability

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"

	"github.com/surehand/surehand/contracts/handoff"
)

const (
	// MaxBytes bounds an encoded capability.
	MaxBytes = 512
	// MaxLinks bounds how often one may be narrowed.
	MaxLinks = 8

	// Versions of the encoding. One of version 2 says that the daemon that minted it
	// takes its reader's trace with a PULL or JOIN; it is all that a reader knows of
	// that daemon's release before it speaks.
	versionPlain  = 1
	versionTraced = 2

	macBytes = sha256.Size
)

// Direction is what may be done; there is no right to write (rule 20).
type Direction uint8

// DirectionRead is the only direction.
const DirectionRead Direction = 1

// Key mints and verifies the capabilities of one TP incarnation.
type Key [32]byte

// NewKey makes a random key.
func NewKey() Key {
	var k Key
	rand.Read(k[:]) // never fails since Go 1.24
	return k
}

// Range of pieces: From ≤ piece < To.
type Range struct{ From, To uint32 }

// Has says whether piece i lies in r.
func (r Range) Has(i uint32) bool { return r.From <= i && i < r.To }

// Within says whether r is no wider than outer.
func (r Range) Within(outer Range) bool {
	return r.From < r.To && outer.From <= r.From && r.To <= outer.To
}

// Right is what a capability grants, in full: who may read which pieces of which
// attempt's source, from whom, until when.
type Right struct {
	Grant       handoff.GrantID
	Attempt     handoff.Attempt
	Source      handoff.NodeID // TP
	Incarnation handoff.Incarnation
	Holder      handoff.NodeID // TD
	Direction   Direction
	Pieces      Range
	Expiry      handoff.Instant // of TP's own monotonic clock; means nothing elsewhere (rule 24)
}

// Mint makes a capability for r.
func Mint(k Key, r Right) ([]byte, error) {
	if err := validate(r); err != nil {
		return nil, err
	}
	b := appendRight(nil, r)
	b = append(b, 0) // links
	return append(b, sum(k[:], b[:len(b)-1])...), nil
}

func validate(r Right) error {
	if err := r.Attempt.Validate(); err != nil {
		return err
	}
	if err := handoff.ValidateID("source node", string(r.Source)); err != nil {
		return err
	}
	if err := handoff.ValidateID("holder node", string(r.Holder)); err != nil {
		return err
	}
	switch {
	case r.Incarnation == 0:
		return handoff.Errorf(handoff.CodeInvalid, "incarnation is zero")
	case r.Direction != DirectionRead:
		return handoff.Errorf(handoff.CodeInvalid, "direction %d, want read", r.Direction)
	case r.Pieces.From >= r.Pieces.To || r.Pieces.To > handoff.MaxPieces:
		return handoff.Errorf(handoff.CodeInvalid, "pieces %d..%d, limit %d", r.Pieces.From, r.Pieces.To, handoff.MaxPieces)
	case r.Expiry <= 0:
		return handoff.Errorf(handoff.CodeInvalid, "expiry %s", r.Expiry)
	}
	return nil
}

// TakesTrace says whether the daemon that minted token takes a trace. Who holds a
// token cannot prove it, and a wrong answer costs its holder a refusal.
func TakesTrace(token []byte) bool { return len(token) > 0 && token[0] == versionTraced }

func sum(key, message []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write(message)
	return h.Sum(nil)
}

func appendLink(b []byte, r Range) []byte {
	b = binary.LittleEndian.AppendUint32(b, r.From)
	return binary.LittleEndian.AppendUint32(b, r.To)
}

const linkBytes = 8

// Attenuate narrows a capability to the pieces of r. It needs no key.
func Attenuate(token []byte, r Range) ([]byte, error) {
	p, err := parse(token)
	if err != nil {
		return nil, err
	}
	if len(p.links) == MaxLinks {
		return nil, handoff.Errorf(handoff.CodeTooLarge, "narrowed %d times, limit %d", MaxLinks, MaxLinks)
	}
	if !r.Within(p.narrowest()) {
		return nil, handoff.Errorf(handoff.CodeDenied, "pieces %d..%d are not within %+v", r.From, r.To, p.narrowest())
	}
	out := append([]byte(nil), p.base...)
	out = append(out, byte(len(p.links)+1))
	for _, l := range p.links {
		out = appendLink(out, l)
	}
	link := appendLink(nil, r)
	out = append(out, link...)
	return append(out, sum(p.mac, link)...), nil
}

// Presented is what TP compares a capability with.
type Presented struct {
	Attempt     handoff.Attempt // asked for
	Source      handoff.NodeID  // this TP
	Incarnation handoff.Incarnation
	Holder      handoff.NodeID // who presents it, as its connection proved
	Now         handoff.Instant
}

// Authentic says which attempt's source a capability is of that was minted under k,
// whoever presents it for whatever: for the record, it gives no right.
func Authentic(k Key, token []byte) (handoff.Attempt, bool) {
	p, err := parse(token)
	if err != nil {
		return handoff.Attempt{}, false
	}
	return p.right.Attempt, hmac.Equal(p.chain(k), p.mac)
}

// Verify checks that token was minted under k, for who presents it, and is not
// expired. The answer's Pieces are the narrowest range of the chain. Every
// refusal but a stale incarnation is CodeDenied and tells nothing more to a
// forger than the field that differs.
func Verify(k Key, token []byte, at Presented) (Right, error) {
	p, err := parse(token)
	if err != nil {
		return Right{}, err
	}
	if !hmac.Equal(p.chain(k), p.mac) {
		if p.right.Source == at.Source && p.right.Incarnation != at.Incarnation {
			return Right{}, handoff.Errorf(handoff.CodeStaleIncarnation, "the capability is of another life of this daemon")
		}
		return Right{}, handoff.Errorf(handoff.CodeDenied, "the capability is not ours")
	}
	switch r := p.right; {
	case r.Source != at.Source || r.Incarnation != at.Incarnation:
		return Right{}, handoff.Errorf(handoff.CodeStaleIncarnation, "the capability is of another daemon")
	case r.Holder != at.Holder:
		return Right{}, handoff.Errorf(handoff.CodeDenied, "the capability's holder is another daemon")
	case r.Attempt != at.Attempt:
		return Right{}, handoff.Errorf(handoff.CodeDenied, "the capability is for another attempt")
	case r.Direction != DirectionRead:
		return Right{}, handoff.Errorf(handoff.CodeDenied, "the capability is not for reading")
	case at.Now >= r.Expiry:
		return Right{}, handoff.Errorf(handoff.CodeDenied, "the capability is expired")
	}
	for _, l := range p.links { // a link that widens was never made by Attenuate
		if !l.Within(p.right.Pieces) {
			return Right{}, handoff.Errorf(handoff.CodeDenied, "the capability widens itself")
		}
		p.right.Pieces = l
	}
	return p.right, nil
}
