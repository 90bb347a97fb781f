// Package wire is the codec of the frames that two transferds exchange. It does
// no I/O: callers read HeaderBytes, parse them, learn a bounded payload length
// and only then allocate.
//
// A connection serves one attempt at a time. TD dials TP:
//
//	TD                                   TP
//	HELLO (who, and whom I expect)   ──▶
//	                                 ◀── HELLO_OK, or ERROR for the wrong daemon
//	PULL (attempt, capability, trace)──▶     the trace only where TP takes one
//	                                 ◀── SOURCE (grant, state, shape)
//	                                 ◀── READY (announced runs), as P writes them
//	READ (runs)                      ──▶
//	                                 ◀── DATA (table of pieces, then their bytes)
//	                                 ◀── SEALED (manifest digest, piece digests)
//	QUESTION                         ──▶
//	                                 ◀── ANSWER
//	FINISH (I read no more)          ──▶     TP closes the source
//	                                 ◀── FINISHED: nothing of this attempt follows
//
// More connections may JOIN the pull (attempt, capability; JOINED answers) and carry
// READ and DATA beside it, up to a FINISH of their own. They end with the pull.
//
// After FINISHED the connection serves the next PULL; after every other end of an
// attempt it is destroyed.
// PING renews the grant's lease at TP and is answered by PONG. CANCEL says that
// TD stopped before the end. ERROR is final: the sender closes after it.
package wire

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/surehand/surehand/contracts/capability"
	"github.com/surehand/surehand/contracts/handoff"
)

const (
	// HeaderBytes is the size of the fixed header: magic u32, version u8, kind u8,
	// flags u16 (zero), payload length u32, CRC32C of the twelve bytes before it.
	HeaderBytes = 16
	// Version of this protocol; another is refused, both ways, before anything of it
	// is understood. Version 2 added FINISHED and the level of a PULL, version 3 the
	// layout of a SOURCE, version 4 JOIN. The trace of a PULL has none: a capability
	// says whether its daemon takes one.
	Version = 4
	// MaxRuns bounds the runs of one READY or READ.
	MaxRuns = 4096
	// MaxBatchPieces and MaxBatchBytes bound the pieces of one DATA frame.
	MaxBatchPieces = 256
	MaxBatchBytes  = handoff.MaxPieceBytes
	// MaxDetailBytes bounds the text of an ERROR or ANSWER; a longer one is cut.
	MaxDetailBytes = 255

	magic = 0x31445348 // "HSD1"
)

// Kind of a frame.
type Kind uint8

const (
	KindHello Kind = iota + 1
	KindHelloOK
	KindPull
	KindSource
	KindReady
	KindRead
	KindData
	KindSealed
	KindQuestion
	KindAnswer
	KindFinish
	KindCancel
	KindPing
	KindPong
	KindError
	KindFinished
	KindJoin
	KindJoined
	kindEnd
)

var kinds = [kindEnd]struct {
	name string
	max  uint32 // bytes of payload
}{
	KindHello:    {"hello", 256},
	KindHelloOK:  {"hello-ok", 256},
	KindPull:     {"pull", 256 + capability.MaxBytes},
	KindSource:   {"source", 16<<10 + MaxLayoutBytes},
	KindReady:    {"ready", 4 + 8*MaxRuns},
	KindRead:     {"read", 4 + 8*MaxRuns},
	KindData:     {"data", 4 + entryBytes*MaxBatchPieces + MaxBatchBytes},
	KindSealed:   {"sealed", 32 + 4*handoff.MaxPieces},
	KindQuestion: {"question", 512},
	KindAnswer:   {"answer", 16 + 2*256},
	KindFinish:   {"finish", 8},
	KindCancel:   {"cancel", 8},
	KindPing:     {"ping", 16},
	KindPong:     {"pong", 16},
	KindError:    {"error", 2 * 256},
	KindFinished: {"finished", 8},
	KindJoin:     {"join", 256 + capability.MaxBytes},
	KindJoined:   {"joined", 8},
}

func (k Kind) String() string {
	if k == 0 || k >= kindEnd {
		return "out-of-range"
	}
	return kinds[k].name
}

// Header of a frame.
type Header struct {
	Kind   Kind
	Length uint32 // of the payload; within the kind's bound once parsed
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Checksum is the CRC32C of a piece, on the wire and in a manifest.
func Checksum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// MoreChecksum is that of what sum is of, with b behind it.
func MoreChecksum(sum uint32, b []byte) uint32 { return crc32.Update(sum, castagnoli, b) }

// AppendHeader writes a header for a payload of length bytes.
func AppendHeader(b []byte, k Kind, length uint32) []byte {
	at := len(b)
	b = binary.LittleEndian.AppendUint32(b, magic)
	b = append(b, Version, byte(k), 0, 0)
	b = binary.LittleEndian.AppendUint32(b, length)
	return binary.LittleEndian.AppendUint32(b, Checksum(b[at:]))
}

// ParseHeader reads a header and refuses a length over its kind's bound, so that
// nothing is allocated for a frame that cannot be right.
func ParseHeader(b []byte) (Header, error) {
	if len(b) != HeaderBytes {
		return Header{}, handoff.Errorf(handoff.CodeInvalid, "header of %d bytes", len(b))
	}
	if binary.LittleEndian.Uint32(b) != magic {
		return Header{}, handoff.Errorf(handoff.CodeInvalid, "not a transferd")
	}
	if binary.LittleEndian.Uint32(b[12:]) != Checksum(b[:12]) {
		return Header{}, handoff.Errorf(handoff.CodeIntegrity, "header is damaged")
	}
	h := Header{Kind: Kind(b[5]), Length: binary.LittleEndian.Uint32(b[8:])}
	switch {
	case b[4] != Version:
		return Header{}, handoff.Errorf(handoff.CodeMismatch, "the peer's transferd speaks protocol version %d, this one %d", b[4], Version)
	case b[6] != 0 || b[7] != 0:
		return Header{}, handoff.Errorf(handoff.CodeInvalid, "unknown flags")
	case h.Kind == 0 || h.Kind >= kindEnd:
		return Header{}, handoff.Errorf(handoff.CodeInvalid, "unknown frame kind %d", h.Kind)
	case h.Length > kinds[h.Kind].max:
		return Header{}, handoff.Errorf(handoff.CodeTooLarge, "%s of %d bytes, limit %d", h.Kind, h.Length, kinds[h.Kind].max)
	}
	return h, nil
}

// appendFrame writes a header and the payload that body appends.
func appendFrame(b []byte, k Kind, body func([]byte) []byte) []byte {
	at := len(b)
	b = AppendHeader(b, k, 0)
	b = body(b)
	AppendHeader(b[at:at], k, uint32(len(b)-at-HeaderBytes)) // the length is known now: overwrite in place
	return b
}

func malformed(k Kind) error { return handoff.Errorf(handoff.CodeInvalid, "malformed %s", k) }
