package socket

import (
	"bytes"
	"encoding/binary"
	"testing"

	"google.golang.org/protobuf/proto"

	transferv1 "github.com/surehand/surehand/contracts/gen/surehand/transfer/v1"
)

// Whatever an engine says: a message that is accepted is within the bound, comes back
// as it went, and took no more of the stream than its frame.
func FuzzReceive(f *testing.F) {
	for _, m := range []*transferv1.EngineMessage{{Id: 1}, {Id: 2, Body: &transferv1.EngineMessage_Attach{Attach: &transferv1.Attach{Engine: "e", FlagSlots: 1}}},
		{Id: 3, Body: &transferv1.EngineMessage_OpenTarget{OpenTarget: &transferv1.OpenTarget{Offsets: []uint64{1, 2, 3}}}}} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(append(binary.LittleEndian.AppendUint32(nil, uint32(len(b))), b...), uint32(64))
	}
	f.Add([]byte{0xff, 0xff, 0xff, 0x7f}, uint32(MaxFrameBytes))
	f.Fuzz(func(t *testing.T, text []byte, limit uint32) {
		if len(text) < 4 {
			return
		}
		limit %= MaxFrameBytes + 1
		n := binary.LittleEndian.Uint32(text)
		r := bytes.NewReader(text[4:])
		m := new(transferv1.EngineMessage)
		if err := new(Conn).body(r, n, limit, m); err != nil {
			if n > limit && r.Len() != len(text)-4 {
				t.Fatal("bytes of a frame over the bound were read")
			}
			return
		}
		if n > limit || r.Len() != len(text)-4-int(n) {
			t.Fatalf("a frame of %d bytes, limit %d, left %d", n, limit, r.Len())
		}
		again, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		back := new(transferv1.EngineMessage)
		if err := proto.Unmarshal(again, back); err != nil || !proto.Equal(m, back) {
			t.Fatalf("%v became %v, %v", m, back, err)
		}
	})
}
