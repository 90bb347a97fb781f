package tcp

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/wire"
	"github.com/surehand/surehand/transferd/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var shape = handoff.Shape{Revision: "m", Layout: handoff.Digest{1}, Tokens: 1,
	Groups: []handoff.Group{{Name: "g", Layers: 1, Blocks: 4, BlockBytes: 64}}}

// script is a connection whose peer says a fixed text.
type script struct {
	io.Reader
	net.Conn
}

func (s script) Read(b []byte) (int, error)       { return s.Reader.Read(b) }
func (s script) Write(b []byte) (int, error)      { return len(b), nil }
func (s script) SetReadDeadline(time.Time) error  { return nil }
func (s script) SetWriteDeadline(time.Time) error { return nil }
func (s script) Close() error                     { return nil }

// sink counts, and gives out only the memory of asked pieces.
type sink struct {
	memory  [4][]byte
	landed  int
	sealed  int
	answers int
}

func (s *sink) Announced([]wire.Run) error { return nil }
func (s *sink) Places(entries []wire.Entry, into [][]byte) ([][]byte, error) {
	for _, e := range entries {
		if e.Piece >= 4 || e.Length != 64 {
			return into, handoff.Errorf(handoff.CodeInvalid, "unasked")
		}
		into = append(into, s.memory[e.Piece])
	}
	return into, nil
}
func (s *sink) Landed(entries []wire.Entry, _ [][]byte) error { s.landed += len(entries); return nil }
func (s *sink) Sealed(m wire.Sealed) error {
	if len(m.Digests) != 4 {
		return handoff.Errorf(handoff.CodeInternal, "%d digests", len(m.Digests))
	}
	s.sealed++
	return nil
}
func (s *sink) Answered(wire.Answer) error   { s.answers++; return nil }
func (s *sink) Advance(transport.Lane) error { return nil }

// play hands the text to a lane, step by step, and gives the error that ended it.
func play(t *testing.T, text []byte) (*sink, error) {
	t.Helper()
	st, err := newStream(script{Reader: bytes.NewReader(text)})
	if err != nil {
		t.Fatal(err)
	}
	s := &sink{}
	backing := make([]byte, 4*64+64)
	for i := range s.memory {
		s.memory[i] = backing[i*64 : (i+1)*64 : (i+1)*64]
	}
	guard := backing[4*64:]
	l := &lane{reader: reader{connection: &connection{stream: st}}, sink: s, source: wire.Source{Grant: 1, Shape: shape}}
	for err == nil {
		err = l.Step(time.Second)
	}
	if !bytes.Equal(guard, make([]byte, 64)) {
		t.Fatal("a byte landed past the target")
	}
	return s, err
}

// talk is what a good source says.
func talk() []byte {
	b := wire.AppendRuns(nil, wire.KindReady, []wire.Run{{First: 0, Count: 4}})
	piece := bytes.Repeat([]byte{7}, 64)
	b = wire.AppendData(b, []wire.Entry{{Piece: 1, Length: 64, Check: 1}, {Piece: 3, Length: 64, Check: 1}})
	b = append(append(b, piece...), piece...)
	b = wire.AppendPong(b, wire.Pong{Sequence: 1, State: handoff.SourceOpened})
	b = wire.AppendSealed(b, wire.Sealed{Digests: make([]uint32, 4)})
	b = wire.AppendAnswer(b, wire.Answer{Nonce: 5})
	return wire.AppendError(b, handoff.Errorf(handoff.CodeLease, "over"))
}

func TestALaneHandsOverWhatItsSourceSays(t *testing.T) {
	s, err := play(t, talk())
	if handoff.CodeOf(err) != handoff.CodeLease || s.landed != 2 || s.sealed != 1 || s.answers != 1 {
		t.Fatalf("%+v, %v", s, err)
	}
	if s.memory[3][63] != 7 || s.memory[2][0] != 0 {
		t.Fatal("bytes lie elsewhere")
	}
}

func TestATornTalkIsALostConnection(t *testing.T) {
	good := talk()
	for cut := range len(good) - 1 {
		if _, err := play(t, good[:cut]); handoff.CodeOf(err) != handoff.CodeUnavailable {
			t.Fatalf("cut at %d: %v", cut, err)
		}
	}
}

func TestAManifestOfAnotherSizeIsRefusedBeforeItIsRead(t *testing.T) {
	for _, n := range []uint32{0, 3, 5, handoff.MaxPieces} {
		if _, err := play(t, wire.AppendHeader(nil, wire.KindSealed, wire.SealedBytes(n))); handoff.CodeOf(err) != handoff.CodeMismatch {
			t.Fatalf("%d pieces: %v", n, err)
		}
	}
}

func FuzzLane(f *testing.F) {
	f.Add(talk())
	f.Add(wire.AppendData(nil, []wire.Entry{{Piece: 0, Length: 64}}))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := play(t, text)
		if err == nil || s.landed > 4*len(text) {
			t.Fatal(s, err)
		}
	})
}
