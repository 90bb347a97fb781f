package wire

import (
	"bytes"
	"encoding/binary"

	"github.com/surehand/surehand/contracts/fields"
	"github.com/surehand/surehand/contracts/handoff"
)

// MaxLayoutBytes bounds the layout of a SOURCE.
const MaxLayoutBytes = 12 << 10

// Source answers a PULL: what there is to read.
type Source struct {
	Grant  handoff.GrantID
	State  handoff.SourceState
	Shape  handoff.Shape
	Layout []byte // what Shape.Layout stands for, encoded; empty when P's engine did not say
}

// AppendSource writes a SOURCE; the shape is valid.
func AppendSource(b []byte, s Source) []byte {
	return appendFrame(b, KindSource, func(b []byte) []byte {
		b = binary.LittleEndian.AppendUint64(b, uint64(s.Grant))
		b = append(b, byte(s.State))
		b = fields.AppendString(b, s.Shape.Revision)
		b = append(b, s.Shape.Layout[:]...)
		b = binary.LittleEndian.AppendUint32(b, s.Shape.Tokens)
		b = append(b, byte(len(s.Shape.Groups)), byte(len(s.Shape.Items)))
		for _, g := range s.Shape.Groups {
			b = fields.AppendString(b, g.Name)
			b = binary.LittleEndian.AppendUint32(b, g.Layers)
			b = binary.LittleEndian.AppendUint32(b, g.Blocks)
			b = binary.LittleEndian.AppendUint32(b, g.BlockBytes)
		}
		for _, it := range s.Shape.Items {
			b = fields.AppendString(b, it.Class)
			b = binary.LittleEndian.AppendUint32(b, it.Bytes)
		}
		b = binary.LittleEndian.AppendUint16(b, uint16(len(s.Layout)))
		return append(b, s.Layout...)
	})
}

// ParseSource reads a SOURCE and refuses a shape over the limits.
func ParseSource(p []byte) (Source, error) {
	c := fields.Cursor{Bytes: p}
	s := Source{Grant: handoff.GrantID(c.Uint64()), State: handoff.SourceState(c.Octet())}
	s.Shape.Revision = c.Text()
	s.Shape.Layout = handoff.Digest(c.Take(len(handoff.Digest{})))
	s.Shape.Tokens = c.Uint32()
	groups, items := int(c.Octet()), int(c.Octet())
	if c.Bad || groups > handoff.MaxGroups || items > handoff.MaxItems || s.State > handoff.SourceClosed {
		return s, malformed(KindSource)
	}
	for range groups {
		s.Shape.Groups = append(s.Shape.Groups, handoff.Group{Name: c.Text(), Layers: c.Uint32(), Blocks: c.Uint32(), BlockBytes: c.Uint32()})
	}
	for range items {
		s.Shape.Items = append(s.Shape.Items, handoff.Item{Class: c.Text(), Bytes: c.Uint32()})
	}
	if n := int(c.Uint16()); n > 0 && !c.Bad {
		s.Layout = bytes.Clone(c.Take(n)) // the payload is reused
	}
	if !c.Done() || len(s.Layout) > MaxLayoutBytes {
		return s, malformed(KindSource)
	}
	return s, s.Shape.Validate()
}

// Sealed is the frozen manifest; attempt and shape are known from before.
type Sealed struct {
	Manifest handoff.Digest
	Digests  []uint32
}

// AppendSealed writes a SEALED.
func AppendSealed(b []byte, s Sealed) []byte {
	return appendFrame(b, KindSealed, func(b []byte) []byte {
		b = append(b, s.Manifest[:]...)
		for _, d := range s.Digests {
			b = binary.LittleEndian.AppendUint32(b, d)
		}
		return b
	})
}

// SealedBytes is the only right payload length for that many pieces; a reader
// compares before it allocates.
func SealedBytes(pieces uint32) uint32 { return uint32(len(handoff.Digest{})) + 4*pieces }

// ParseSealed reads a SEALED for that many pieces.
func ParseSealed(p []byte, pieces uint32) (Sealed, error) {
	if uint64(len(p)) != uint64(SealedBytes(pieces)) || pieces > handoff.MaxPieces {
		return Sealed{}, malformed(KindSealed)
	}
	c := fields.Cursor{Bytes: p}
	s := Sealed{Manifest: handoff.Digest(c.Take(len(handoff.Digest{}))), Digests: make([]uint32, pieces)}
	for i := range s.Digests {
		s.Digests[i] = c.Uint32()
	}
	return s, nil
}

// Question is asked after everything of this pull is here and verified: was the
// grant held without a gap, and is the attempt not closed (rule 12)?
type Question struct {
	Grant       handoff.GrantID
	Incarnation handoff.Incarnation // of TP
	Manifest    handoff.Digest
	Token       handoff.Token // τ
	Nonce       handoff.Nonce // fresh
}

// AppendQuestion writes a QUESTION.
func AppendQuestion(b []byte, q Question) []byte {
	return appendFrame(b, KindQuestion, func(b []byte) []byte {
		b = binary.LittleEndian.AppendUint64(b, uint64(q.Grant))
		b = binary.LittleEndian.AppendUint64(b, uint64(q.Incarnation))
		b = append(b, q.Manifest[:]...)
		b = appendAttempt(b, q.Token.Attempt)
		b = fields.AppendString(b, string(q.Token.Node))
		b = binary.LittleEndian.AppendUint64(b, uint64(q.Token.Incarnation))
		b = binary.LittleEndian.AppendUint64(b, uint64(q.Token.Generation))
		return binary.LittleEndian.AppendUint64(b, uint64(q.Nonce))
	})
}

// ParseQuestion reads a QUESTION.
func ParseQuestion(p []byte) (Question, error) {
	c := fields.Cursor{Bytes: p}
	q := Question{Grant: handoff.GrantID(c.Uint64()), Incarnation: handoff.Incarnation(c.Uint64()), Manifest: handoff.Digest(c.Take(len(handoff.Digest{})))}
	q.Token = handoff.Token{Attempt: takeAttempt(&c), Node: handoff.NodeID(c.Text()), Incarnation: handoff.Incarnation(c.Uint64()), Generation: handoff.Generation(c.Uint64())}
	q.Nonce = handoff.Nonce(c.Uint64())
	if !c.Done() || q.Nonce == 0 {
		return q, malformed(KindQuestion)
	}
	return q, q.Token.Attempt.Validate()
}

// Answer to a question; Refusal is nil for yes.
type Answer struct {
	Nonce   handoff.Nonce // of the question
	Refusal *handoff.Error
}

// AppendAnswer writes an ANSWER. A refusal always has a code, so that no answer
// can be taken for a yes by what it lacks: yes is an octet of its own.
func AppendAnswer(b []byte, a Answer) []byte {
	return appendFrame(b, KindAnswer, func(b []byte) []byte {
		b = binary.LittleEndian.AppendUint64(b, uint64(a.Nonce))
		if a.Refusal == nil {
			return append(b, answerYes, 0, 0)
		}
		return appendFailure(append(b, answerNo), a.Refusal)
	})
}

const (
	answerYes = 1
	answerNo  = 2
)

// ParseAnswer reads an ANSWER.
func ParseAnswer(p []byte) (Answer, error) {
	c := fields.Cursor{Bytes: p}
	a := Answer{Nonce: handoff.Nonce(c.Uint64())}
	verdict := c.Octet()
	a.Refusal = takeFailure(&c)
	if !c.Done() || (verdict == answerYes) != (a.Refusal == nil) || verdict != answerYes && verdict != answerNo {
		return Answer{Refusal: handoff.Errorf(handoff.CodeInvalid, "malformed answer")}, malformed(KindAnswer)
	}
	return a, nil
}
