package wire

import (
	"bytes"
	"testing"
)

// A header that is accepted is the one that this daemon would have written, and
// never claims more than its kind's bound.
func FuzzHeader(f *testing.F) {
	f.Add(AppendHeader(nil, KindRead, 12))
	f.Add(AppendHeader(nil, KindData, kinds[KindData].max+1))
	f.Add(AppendHeader(nil, kindEnd, 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := ParseHeader(b)
		if err != nil {
			return
		}
		if h.Length > kinds[h.Kind].max || !bytes.Equal(AppendHeader(nil, h.Kind, h.Length), b) {
			t.Fatalf("%+v of %x", h, b)
		}
	})
}
