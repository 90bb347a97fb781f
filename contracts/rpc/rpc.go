// Package rpc translates between contracts/handoff and the generated messages,
// and carries typed refusals through gRPC statuses. No I/O, no policy.
package rpc

import (
	transferv1 "github.com/surehand/surehand/contracts/gen/surehand/transfer/v1"
	"github.com/surehand/surehand/contracts/handoff"
)

// Attempt to the wire.
func Attempt(a handoff.Attempt) *transferv1.Attempt {
	return &transferv1.Attempt{Handoff: string(a.Handoff), Epoch: uint32(a.Epoch), Nonce: uint64(a.Nonce)}
}

// FromAttempt reads an attempt and refuses a malformed one.
func FromAttempt(m *transferv1.Attempt) (handoff.Attempt, error) {
	a := handoff.Attempt{Handoff: handoff.HandoffID(m.GetHandoff()), Epoch: handoff.Epoch(m.GetEpoch()), Nonce: handoff.Nonce(m.GetNonce())}
	return a, a.Validate()
}

func seat(s handoff.Seat) *transferv1.Seat {
	return &transferv1.Seat{Engine: string(s.Engine), Node: string(s.Node), Incarnation: uint64(s.Incarnation)}
}

func fromSeat(m *transferv1.Seat) handoff.Seat {
	return handoff.Seat{Engine: handoff.EngineID(m.GetEngine()), Node: handoff.NodeID(m.GetNode()), Incarnation: handoff.Incarnation(m.GetIncarnation())}
}

// Reader to the wire.
func Reader(r handoff.Reader) *transferv1.Reader {
	return &transferv1.Reader{Process: r.Process, Incarnation: uint64(r.Incarnation), Number: r.Number}
}

// FromReader reads a reader; an absent one is the zero Reader, which names nobody.
func FromReader(m *transferv1.Reader) handoff.Reader {
	return handoff.Reader{Process: m.GetProcess(), Incarnation: handoff.Incarnation(m.GetIncarnation()), Number: m.GetNumber()}
}

// Plan to the wire.
func Plan(p handoff.Plan) *transferv1.Plan {
	return &transferv1.Plan{Attempt: Attempt(p.Attempt), P: seat(p.P), D: seat(p.D), Reader: Reader(p.Reader), BodyDigest: p.BodyDigest[:]}
}

// FromPlan reads a plan and refuses a malformed one.
func FromPlan(m *transferv1.Plan) (handoff.Plan, error) {
	if m == nil {
		return handoff.Plan{}, handoff.Errorf(handoff.CodeInvalid, "plan is missing")
	}
	a, err := FromAttempt(m.GetAttempt())
	if err != nil {
		return handoff.Plan{}, err
	}
	d, err := digest("body digest", m.GetBodyDigest())
	if err != nil {
		return handoff.Plan{}, err
	}
	p := handoff.Plan{Attempt: a, P: fromSeat(m.GetP()), D: fromSeat(m.GetD()), Reader: FromReader(m.GetReader()), BodyDigest: d}
	return p, p.Validate()
}

func digest(field string, b []byte) (handoff.Digest, error) {
	var d handoff.Digest
	if len(b) != len(d) {
		return d, handoff.Errorf(handoff.CodeInvalid, "%s has %d bytes, want %d", field, len(b), len(d))
	}
	copy(d[:], b)
	return d, nil
}

// Token to the wire.
func Token(t handoff.Token) *transferv1.Token {
	return &transferv1.Token{Attempt: Attempt(t.Attempt), Node: string(t.Node), Incarnation: uint64(t.Incarnation), Generation: uint64(t.Generation)}
}

// FromToken reads a fencing token.
func FromToken(m *transferv1.Token) (handoff.Token, error) {
	if m == nil {
		return handoff.Token{}, handoff.Errorf(handoff.CodeInvalid, "token is missing")
	}
	a, err := FromAttempt(m.GetAttempt())
	return handoff.Token{Attempt: a, Node: handoff.NodeID(m.GetNode()), Incarnation: handoff.Incarnation(m.GetIncarnation()), Generation: handoff.Generation(m.GetGeneration())}, err
}

// Shape to the wire.
func Shape(s handoff.Shape) *transferv1.Shape {
	m := &transferv1.Shape{Revision: s.Revision, Layout: s.Layout[:], Tokens: s.Tokens}
	for _, g := range s.Groups {
		m.Groups = append(m.Groups, &transferv1.Group{Name: g.Name, Layers: g.Layers, Blocks: g.Blocks, BlockBytes: g.BlockBytes})
	}
	for _, it := range s.Items {
		m.Items = append(m.Items, &transferv1.Item{Class: it.Class, Bytes: it.Bytes})
	}
	return m
}

// FromShape reads a shape; lengths are bounded before anything is allocated.
func FromShape(m *transferv1.Shape) (handoff.Shape, error) {
	if len(m.GetGroups()) > handoff.MaxGroups || len(m.GetItems()) > handoff.MaxItems {
		return handoff.Shape{}, handoff.Errorf(handoff.CodeTooLarge, "shape has %d groups and %d items, limits %d and %d", len(m.GetGroups()), len(m.GetItems()), handoff.MaxGroups, handoff.MaxItems)
	}
	l, err := digest("layout", m.GetLayout())
	if err != nil {
		return handoff.Shape{}, err
	}
	s := handoff.Shape{Revision: m.GetRevision(), Layout: l, Tokens: m.GetTokens()}
	for _, g := range m.GetGroups() {
		s.Groups = append(s.Groups, handoff.Group{Name: g.GetName(), Layers: g.GetLayers(), Blocks: g.GetBlocks(), BlockBytes: g.GetBlockBytes()})
	}
	for _, it := range m.GetItems() {
		s.Items = append(s.Items, handoff.Item{Class: it.GetClass(), Bytes: it.GetBytes()})
	}
	return s, s.Validate()
}

// Manifest to the wire.
func Manifest(m handoff.Manifest) *transferv1.Manifest {
	return &transferv1.Manifest{Attempt: Attempt(m.Attempt), Shape: Shape(m.Shape), Digests: m.Digests}
}

// FromManifest reads a manifest.
func FromManifest(m *transferv1.Manifest) (handoff.Manifest, error) {
	a, err := FromAttempt(m.GetAttempt())
	if err != nil {
		return handoff.Manifest{}, err
	}
	s, err := FromShape(m.GetShape())
	if err != nil {
		return handoff.Manifest{}, err
	}
	out := handoff.Manifest{Attempt: a, Shape: s, Digests: m.GetDigests()}
	return out, out.Validate()
}
