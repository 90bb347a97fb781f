package capability

import (
	"encoding/binary"

	"github.com/surehand/surehand/contracts/fields"
	"github.com/surehand/surehand/contracts/handoff"
)

// The encoding is canonical: fixed-width little-endian numbers, a length byte
// before each string, in the order of Right; then the number of links, the
// links, the last link's MAC.

func appendRight(b []byte, r Right) []byte {
	b = append(b, versionTraced, byte(r.Direction))
	b = binary.LittleEndian.AppendUint64(b, uint64(r.Grant))
	b = fields.AppendString(b, string(r.Attempt.Handoff))
	b = binary.LittleEndian.AppendUint32(b, uint32(r.Attempt.Epoch))
	b = binary.LittleEndian.AppendUint64(b, uint64(r.Attempt.Nonce))
	b = fields.AppendString(b, string(r.Source))
	b = binary.LittleEndian.AppendUint64(b, uint64(r.Incarnation))
	b = fields.AppendString(b, string(r.Holder))
	b = appendLink(b, r.Pieces)
	return binary.LittleEndian.AppendUint64(b, uint64(r.Expiry))
}

type parsed struct {
	base  []byte // what the key's MAC covers
	right Right
	links []Range
	mac   []byte
}

// chain is the MAC that the last link must have under k.
func (p parsed) chain(k Key) []byte {
	mac := sum(k[:], p.base)
	for _, l := range p.links {
		mac = sum(mac, appendLink(nil, l))
	}
	return mac
}

func (p parsed) narrowest() Range {
	if n := len(p.links); n > 0 {
		return p.links[n-1]
	}
	return p.right.Pieces
}

func span(c *fields.Cursor) Range { return Range{c.Uint32(), c.Uint32()} }

// parse reads a token without believing it.
func parse(token []byte) (p parsed, err error) {
	if len(token) > MaxBytes {
		return p, handoff.Errorf(handoff.CodeTooLarge, "capability of %d bytes, limit %d", len(token), MaxBytes)
	}
	c := &fields.Cursor{Bytes: token}
	v := c.Octet()
	p.right.Direction = Direction(c.Octet())
	p.right.Grant = handoff.GrantID(c.Uint64())
	p.right.Attempt.Handoff = handoff.HandoffID(c.Text())
	p.right.Attempt.Epoch = handoff.Epoch(c.Uint32())
	p.right.Attempt.Nonce = handoff.Nonce(c.Uint64())
	p.right.Source = handoff.NodeID(c.Text())
	p.right.Incarnation = handoff.Incarnation(c.Uint64())
	p.right.Holder = handoff.NodeID(c.Text())
	p.right.Pieces = span(c)
	p.right.Expiry = handoff.Instant(c.Uint64())
	p.base = token[:len(token)-len(c.Bytes)]
	n := int(c.Octet())
	if n > MaxLinks {
		return p, handoff.Errorf(handoff.CodeDenied, "capability with %d links, limit %d", n, MaxLinks)
	}
	for range n {
		p.links = append(p.links, span(c))
	}
	p.mac = c.Take(macBytes)
	if v != versionPlain && v != versionTraced || !c.Done() {
		return p, handoff.Errorf(handoff.CodeDenied, "malformed capability")
	}
	return p, validate(p.right)
}
