package fields

import (
	"encoding/binary"
	"testing"
)

func TestACursorReadsWhatWasAppended(t *testing.T) {
	b := AppendString(nil, "name")
	b = binary.LittleEndian.AppendUint16(b, 1)
	b = binary.LittleEndian.AppendUint32(b, 2)
	b = binary.LittleEndian.AppendUint64(b, 3)
	c := Cursor{Bytes: append(b, 9)}
	if c.Text() != "name" || c.Uint16() != 1 || c.Uint32() != 2 || c.Uint64() != 3 || c.Octet() != 9 || !c.Done() {
		t.Fatalf("%+v", c)
	}
}

func TestAShortFieldIsRememberedAndNothingIsReadAfterIt(t *testing.T) {
	c := Cursor{Bytes: []byte{5, 'a', 'b'}}
	if got := c.Text(); got != "\x00\x00\x00\x00\x00" || !c.Bad {
		t.Fatalf("%q %+v", got, c)
	}
	if c.Octet() != 0 || c.Uint64() != 0 || c.Take(1<<40) != nil || c.Take(-1) != nil || c.Done() {
		t.Fatalf("%+v", c)
	}
}

func TestTrailingBytesAreNotDone(t *testing.T) {
	c := Cursor{Bytes: []byte{1, 2}}
	if c.Octet(); c.Done() {
		t.Fatal("one byte is left")
	}
}
