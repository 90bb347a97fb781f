package wire

import (
	"encoding/binary"
	"errors"
	"strings"

	"github.com/surehand/surehand/contracts/fields"
	"github.com/surehand/surehand/contracts/handoff"
)

// Hello opens a connection: who dials and, because ports are reused, exactly
// whom it means to reach.
type Hello struct {
	From            handoff.NodeID
	FromIncarnation handoff.Incarnation
	To              handoff.NodeID
	ToIncarnation   handoff.Incarnation
}

// AppendHello writes a HELLO.
func AppendHello(b []byte, h Hello) []byte {
	return appendFrame(b, KindHello, func(b []byte) []byte {
		b = fields.AppendString(b, string(h.From))
		b = binary.LittleEndian.AppendUint64(b, uint64(h.FromIncarnation))
		b = fields.AppendString(b, string(h.To))
		return binary.LittleEndian.AppendUint64(b, uint64(h.ToIncarnation))
	})
}

// ParseHello reads a HELLO.
func ParseHello(p []byte) (Hello, error) {
	c := fields.Cursor{Bytes: p}
	h := Hello{From: handoff.NodeID(c.Text()), FromIncarnation: handoff.Incarnation(c.Uint64()),
		To: handoff.NodeID(c.Text()), ToIncarnation: handoff.Incarnation(c.Uint64())}
	if !c.Done() {
		return h, malformed(KindHello)
	}
	if err := handoff.ValidateID("node", string(h.From)); err != nil {
		return h, err
	}
	return h, handoff.ValidateID("node", string(h.To))
}

// HelloOK answers a HELLO: who I am.
type HelloOK struct {
	Node        handoff.NodeID
	Incarnation handoff.Incarnation
}

// AppendHelloOK writes a HELLO_OK.
func AppendHelloOK(b []byte, h HelloOK) []byte {
	return appendFrame(b, KindHelloOK, func(b []byte) []byte {
		b = fields.AppendString(b, string(h.Node))
		return binary.LittleEndian.AppendUint64(b, uint64(h.Incarnation))
	})
}

// ParseHelloOK reads a HELLO_OK.
func ParseHelloOK(p []byte) (HelloOK, error) {
	c := fields.Cursor{Bytes: p}
	h := HelloOK{Node: handoff.NodeID(c.Text()), Incarnation: handoff.Incarnation(c.Uint64())}
	if !c.Done() {
		return h, malformed(KindHelloOK)
	}
	return h, handoff.ValidateID("node", string(h.Node))
}

// Ping renews the grant's lease at TP; Pong echoes Sequence with the source's state.
type Ping struct {
	Sequence uint64
	Lease    uint64 // milliseconds asked for; 0: TP's default
}

// AppendPing writes a PING.
func AppendPing(b []byte, p Ping) []byte {
	return appendFrame(b, KindPing, func(b []byte) []byte {
		b = binary.LittleEndian.AppendUint64(b, p.Sequence)
		return binary.LittleEndian.AppendUint64(b, p.Lease)
	})
}

// ParsePing reads a PING.
func ParsePing(b []byte) (Ping, error) {
	c := fields.Cursor{Bytes: b}
	p := Ping{Sequence: c.Uint64(), Lease: c.Uint64()}
	if !c.Done() {
		return p, malformed(KindPing)
	}
	return p, nil
}

// Pong answers a Ping.
type Pong struct {
	Sequence uint64
	State    handoff.SourceState
}

// AppendPong writes a PONG.
func AppendPong(b []byte, p Pong) []byte {
	return appendFrame(b, KindPong, func(b []byte) []byte {
		return append(binary.LittleEndian.AppendUint64(b, p.Sequence), byte(p.State))
	})
}

// ParsePong reads a PONG.
func ParsePong(b []byte) (Pong, error) {
	c := fields.Cursor{Bytes: b}
	p := Pong{Sequence: c.Uint64(), State: handoff.SourceState(c.Octet())}
	if !c.Done() || p.State > handoff.SourceClosed {
		return p, malformed(KindPong)
	}
	return p, nil
}

// AppendFinish writes a FINISH: the reader's word that it stopped and will start
// no more.
func AppendFinish(b []byte, g handoff.GrantID) []byte { return appendGrant(b, KindFinish, g) }

// AppendFinished writes a FINISHED: TP's word that the attempt of a FINISH is over
// and that no frame of it follows on this connection.
func AppendFinished(b []byte, g handoff.GrantID) []byte { return appendGrant(b, KindFinished, g) }

// AppendJoined writes a JOINED: the connection carries reads of that grant now.
func AppendJoined(b []byte, g handoff.GrantID) []byte { return appendGrant(b, KindJoined, g) }

// AppendCancel writes a CANCEL: the reader stopped before the end.
func AppendCancel(b []byte, g handoff.GrantID) []byte { return appendGrant(b, KindCancel, g) }

func appendGrant(b []byte, k Kind, g handoff.GrantID) []byte {
	return appendFrame(b, k, func(b []byte) []byte { return binary.LittleEndian.AppendUint64(b, uint64(g)) })
}

// ParseGrant reads the payload of a FINISH, FINISHED, JOINED or CANCEL.
func ParseGrant(k Kind, p []byte) (handoff.GrantID, error) {
	c := fields.Cursor{Bytes: p}
	g := handoff.GrantID(c.Uint64())
	if !c.Done() {
		return g, malformed(k)
	}
	return g, nil
}

// AppendError writes an ERROR: a typed refusal, after which the sender closes.
func AppendError(b []byte, err error) []byte {
	return appendFrame(b, KindError, func(b []byte) []byte { return appendFailure(b, err) })
}

// ParseError reads an ERROR into the refusal that it carries.
func ParseError(p []byte) (*handoff.Error, error) {
	c := fields.Cursor{Bytes: p}
	e := takeFailure(&c)
	if !c.Done() || e == nil {
		return nil, malformed(KindError)
	}
	return e, nil
}

func appendFailure(b []byte, err error) []byte {
	var e *handoff.Error
	if !errors.As(err, &e) {
		e = handoff.Errorf(handoff.CodeOf(err), "%s", err)
	}
	b = fields.AppendString(b, e.Code.String())
	return fields.AppendString(b, e.Detail[:min(len(e.Detail), MaxDetailBytes)])
}

// takeFailure gives nil for none.
func takeFailure(c *fields.Cursor) *handoff.Error {
	code, detail := c.Text(), strings.ToValidUTF8(c.Text(), "?") // it goes on in protobuf strings
	if code == "" {
		return nil
	}
	return &handoff.Error{Code: handoff.ParseCode(code), Detail: detail}
}
