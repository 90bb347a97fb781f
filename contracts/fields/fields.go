// Package fields takes and appends the fixed-width little-endian fields of which
// capabilities, peer frames and flag page slots are made. A Cursor never reads
// past its bytes and never allocates more than them.
package fields

import "encoding/binary"

// MaxString is the longest string that AppendString can write.
const MaxString = 255

// Cursor takes fields off Bytes. Bad stays set after the first field that was
// not whole; what is taken after it is zero. The zero value is ready.
type Cursor struct {
	Bytes []byte
	Bad   bool
}

var zeros [MaxString]byte

// Take gives the next n bytes, not copied.
func (c *Cursor) Take(n int) []byte {
	if c.Bad || n < 0 || n > len(c.Bytes) {
		c.Bad = true
		if n < 0 || n > len(zeros) {
			return nil
		}
		return zeros[:n:n]
	}
	out := c.Bytes[:n:n]
	c.Bytes = c.Bytes[n:]
	return out
}

// Octet takes one byte.
func (c *Cursor) Octet() byte { return c.Take(1)[0] }

// Text takes a length byte and as many bytes.
func (c *Cursor) Text() string { return string(c.Take(int(c.Octet()))) }

// Uint16 takes two bytes.
func (c *Cursor) Uint16() uint16 { return binary.LittleEndian.Uint16(c.Take(2)) }

// Uint32 takes four bytes.
func (c *Cursor) Uint32() uint32 { return binary.LittleEndian.Uint32(c.Take(4)) }

// Uint64 takes eight bytes.
func (c *Cursor) Uint64() uint64 { return binary.LittleEndian.Uint64(c.Take(8)) }

// Done says that every field was whole and nothing is left.
func (c *Cursor) Done() bool { return !c.Bad && len(c.Bytes) == 0 }

// AppendString writes a length byte and s, of which more than MaxString bytes
// are a mistake of the caller: it checks lengths with a typed error before.
func AppendString(b []byte, s string) []byte {
	if len(s) > MaxString {
		panic("fields: string of more than 255 bytes")
	}
	return append(append(b, byte(len(s))), s...)
}
