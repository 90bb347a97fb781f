package flagpage

import (
	"encoding/binary"

	"github.com/surehand/surehand/contracts/handoff"
)

// appendPlan encodes the parts of a plan that a slot's header does not hold.
func appendPlan(b []byte, p handoff.Plan) ([]byte, error) {
	for _, s := range []string{string(p.Attempt.Handoff), string(p.P.Engine), string(p.P.Node), string(p.D.Engine), string(p.D.Node), p.Reader.Process} {
		if len(s) > handoff.MaxIDBytes {
			return nil, handoff.Errorf(handoff.CodeTooLarge, "a name of the plan has %d bytes, limit %d", len(s), handoff.MaxIDBytes)
		}
	}
	b = appendString(b, string(p.Attempt.Handoff))
	for _, s := range []handoff.Seat{p.P, p.D} {
		b = appendString(b, string(s.Engine))
		b = appendString(b, string(s.Node))
		b = binary.LittleEndian.AppendUint64(b, uint64(s.Incarnation))
	}
	b = appendString(b, p.Reader.Process)
	b = binary.LittleEndian.AppendUint64(b, uint64(p.Reader.Incarnation))
	b = binary.LittleEndian.AppendUint32(b, p.Reader.Number)
	return append(b, p.BodyDigest[:]...), nil
}

func appendString(b []byte, s string) []byte { return append(append(b, byte(len(s))), s...) }

// cursor reads a body; bad stays set after the first short read.
type cursor struct {
	b   []byte
	bad bool
}

func (c *cursor) take(n int) []byte {
	if c.bad || n > len(c.b) {
		c.bad = true
		return make([]byte, n) // n is at most 255
	}
	out := c.b[:n]
	c.b = c.b[n:]
	return out
}

func (c *cursor) text() string   { return string(c.take(int(c.take(1)[0]))) }
func (c *cursor) word() uint64   { return binary.LittleEndian.Uint64(c.take(8)) }
func (c *cursor) number() uint32 { return binary.LittleEndian.Uint32(c.take(4)) }
func (c *cursor) seat() handoff.Seat {
	return handoff.Seat{Engine: handoff.EngineID(c.text()), Node: handoff.NodeID(c.text()), Incarnation: handoff.Incarnation(c.word())}
}

func parsePlan(b []byte) (p handoff.Plan, ok bool) {
	c := &cursor{b: b}
	p.Attempt.Handoff = handoff.HandoffID(c.text())
	p.P = c.seat()
	p.D = c.seat()
	p.Reader = handoff.Reader{Process: c.text(), Incarnation: handoff.Incarnation(c.word()), Number: c.number()}
	p.BodyDigest = handoff.Digest(c.take(len(p.BodyDigest)))
	return p, !c.bad && len(c.b) == 0
}
