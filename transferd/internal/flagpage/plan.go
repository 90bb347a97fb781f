package flagpage

import (
	"encoding/binary"

	"github.com/surehand/surehand/contracts/fields"
	"github.com/surehand/surehand/contracts/handoff"
)

// Fits refuses a plan with a name that a slot has no room for.
func Fits(p handoff.Plan) error {
	for _, s := range []string{string(p.Attempt.Handoff), string(p.P.Engine), string(p.P.Node), string(p.D.Engine), string(p.D.Node), p.Reader.Process} {
		if len(s) > handoff.MaxIDBytes {
			return handoff.Errorf(handoff.CodeTooLarge, "a name of the plan has %d bytes, limit %d", len(s), handoff.MaxIDBytes)
		}
	}
	return nil
}

// appendPlan encodes the parts of a plan that a slot's header does not hold.
func appendPlan(b []byte, p handoff.Plan) ([]byte, error) {
	if err := Fits(p); err != nil {
		return nil, err
	}
	b = fields.AppendString(b, string(p.Attempt.Handoff))
	for _, s := range []handoff.Seat{p.P, p.D} {
		b = fields.AppendString(b, string(s.Engine))
		b = fields.AppendString(b, string(s.Node))
		b = binary.LittleEndian.AppendUint64(b, uint64(s.Incarnation))
	}
	b = fields.AppendString(b, p.Reader.Process)
	b = binary.LittleEndian.AppendUint64(b, uint64(p.Reader.Incarnation))
	b = binary.LittleEndian.AppendUint32(b, p.Reader.Number)
	return append(b, p.BodyDigest[:]...), nil
}

func seat(c *fields.Cursor) handoff.Seat {
	return handoff.Seat{Engine: handoff.EngineID(c.Text()), Node: handoff.NodeID(c.Text()), Incarnation: handoff.Incarnation(c.Uint64())}
}

func parsePlan(b []byte) (p handoff.Plan, ok bool) {
	c := &fields.Cursor{Bytes: b}
	p.Attempt.Handoff = handoff.HandoffID(c.Text())
	p.P = seat(c)
	p.D = seat(c)
	p.Reader = handoff.Reader{Process: c.Text(), Incarnation: handoff.Incarnation(c.Uint64()), Number: c.Uint32()}
	p.BodyDigest = handoff.Digest(c.Take(len(p.BodyDigest)))
	return p, c.Done()
}
