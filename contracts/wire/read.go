package wire

import (
	"encoding/binary"

	"github.com/surehand/surehand/contracts/capability"
	"github.com/surehand/surehand/contracts/fields"
	"github.com/surehand/surehand/contracts/handoff"
)

// Run is Count pieces from First on.
type Run struct{ First, Count uint32 }

// AppendRuns writes a READY or READ; at most MaxRuns.
func AppendRuns(b []byte, k Kind, runs []Run) []byte {
	return appendFrame(b, k, func(b []byte) []byte {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(runs)))
		for _, r := range runs {
			b = binary.LittleEndian.AppendUint32(b, r.First)
			b = binary.LittleEndian.AppendUint32(b, r.Count)
		}
		return b
	})
}

// ParseRuns reads a READY or READ. Every run lies within pieces, and all of them
// together name no more than pieces, so that a short frame cannot ask for
// endless work.
func ParseRuns(k Kind, p []byte, pieces uint32) ([]Run, error) {
	c := fields.Cursor{Bytes: p}
	n := c.Uint32()
	if c.Bad || n > MaxRuns || uint64(len(c.Bytes)) != 8*uint64(n) {
		return nil, malformed(k)
	}
	runs := make([]Run, n)
	var total uint64
	for i := range runs {
		r := Run{c.Uint32(), c.Uint32()}
		total += uint64(r.Count)
		if r.Count == 0 || uint64(r.First)+uint64(r.Count) > uint64(pieces) || total > uint64(pieces) {
			return nil, handoff.Errorf(handoff.CodeInvalid, "%s of pieces %d+%d, there are %d", k, r.First, r.Count, pieces)
		}
		runs[i] = r
	}
	return runs, nil
}

// Runs merges pieces, in their order, into runs.
func Runs(pieces []uint32) []Run {
	var out []Run
	for _, p := range pieces {
		if n := len(out); n > 0 && out[n-1].First+out[n-1].Count == p {
			out[n-1].Count++
		} else {
			out = append(out, Run{p, 1})
		}
	}
	return out
}

const entryBytes = 12

// Entry is one piece of a DATA frame.
type Entry struct {
	Piece, Length uint32
	Check         uint32 // CRC32C of the bytes as they were read (rule 28)
}

// AppendData writes the header and table of a DATA frame; the bytes of its
// entries must follow it on the wire, in order.
func AppendData(b []byte, entries []Entry) []byte {
	length := uint32(4 + entryBytes*len(entries))
	for _, e := range entries {
		length += e.Length
	}
	b = AppendHeader(b, KindData, length)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(entries)))
	for _, e := range entries {
		b = binary.LittleEndian.AppendUint32(b, e.Piece)
		b = binary.LittleEndian.AppendUint32(b, e.Length)
		b = binary.LittleEndian.AppendUint32(b, e.Check)
	}
	return b
}

// DataCountBytes is read first from a DATA frame's payload: the entry count.
const DataCountBytes = 4

// TableBytes is how many bytes of table follow the count in a DATA frame of
// length bytes of payload.
func TableBytes(count []byte, length uint32) (int, error) {
	n := binary.LittleEndian.Uint32(count)
	if n == 0 || n > MaxBatchPieces || DataCountBytes+entryBytes*n > length {
		return 0, malformed(KindData)
	}
	return int(entryBytes * n), nil
}

// ParseTable reads a DATA frame's table into entries, whose lengths add up to
// what is left of the payload.
func ParseTable(entries []Entry, table []byte, length uint32) ([]Entry, error) {
	c := fields.Cursor{Bytes: table}
	left := uint64(length) - DataCountBytes - uint64(len(table))
	entries = entries[:0]
	for len(c.Bytes) > 0 {
		e := Entry{c.Uint32(), c.Uint32(), c.Uint32()}
		if c.Bad || e.Length == 0 || uint64(e.Length) > left {
			return entries, malformed(KindData)
		}
		left -= uint64(e.Length)
		entries = append(entries, e)
	}
	if left != 0 {
		return entries, malformed(KindData)
	}
	return entries, nil
}

// Pull asks for an attempt's source under a capability.
type Pull struct {
	Attempt    handoff.Attempt
	Unchecked  bool // the checksums will not be looked at: TP may leave them out
	Capability []byte
	// Trace is the reader's traceparent, empty for none. Only a daemon whose capability
	// says so (capability.TakesTrace) reads it; all others refuse the frame.
	Trace string
}

// AppendPull writes a PULL; the capability has at most capability.MaxBytes.
func AppendPull(b []byte, p Pull) []byte {
	return appendFrame(b, KindPull, func(b []byte) []byte { return appendPull(b, p) })
}

func appendPull(b []byte, p Pull) []byte {
	b = appendAttempt(b, p.Attempt)
	level := byte(0)
	if p.Unchecked {
		level = 1
	}
	b = append(b, level)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(p.Capability)))
	b = append(b, p.Capability...)
	if p.Trace != "" {
		b = fields.AppendString(b, p.Trace)
	}
	return b
}

// traceparent says whether s is one of W3C's version 00, to the letter.
func traceparent(s string) bool {
	const like, zero = "00-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx-xxxxxxxxxxxxxxxx-xx", "0000000000000000"
	if len(s) != len(like) || s[3:35] == zero+zero || s[36:52] == zero {
		return false
	}
	for i := range len(s) {
		if c := s[i]; like[i] == 'x' && !('0' <= c && c <= '9' || 'a' <= c && c <= 'f') || like[i] != 'x' && c != like[i] {
			return false
		}
	}
	return true
}

// AppendJoin writes a JOIN: one more connection of the pull of the same attempt and
// capability, with the same level.
func AppendJoin(b []byte, p Pull) []byte {
	return appendFrame(b, KindJoin, func(b []byte) []byte { return appendPull(b, p) })
}

// ParsePull reads a PULL or a JOIN.
func ParsePull(b []byte) (Pull, error) {
	c := fields.Cursor{Bytes: b}
	p := Pull{Attempt: takeAttempt(&c)}
	level := c.Octet()
	p.Unchecked = level == 1
	n := int(c.Uint16())
	if c.Bad || level > 1 || n > len(c.Bytes) || n > capability.MaxBytes {
		return p, malformed(KindPull)
	}
	p.Capability = c.Take(n)
	if len(c.Bytes) > 0 {
		if p.Trace = c.Text(); !c.Done() || !traceparent(p.Trace) {
			return p, malformed(KindPull)
		}
	}
	return p, p.Attempt.Validate()
}

func appendAttempt(b []byte, a handoff.Attempt) []byte {
	b = fields.AppendString(b, string(a.Handoff))
	b = binary.LittleEndian.AppendUint32(b, uint32(a.Epoch))
	return binary.LittleEndian.AppendUint64(b, uint64(a.Nonce))
}

func takeAttempt(c *fields.Cursor) handoff.Attempt {
	return handoff.Attempt{Handoff: handoff.HandoffID(c.Text()), Epoch: handoff.Epoch(c.Uint32()), Nonce: handoff.Nonce(c.Uint64())}
}
