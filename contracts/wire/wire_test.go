package wire

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/surehand/surehand/contracts/handoff"
)

var (
	attempt = handoff.Attempt{Handoff: "h-1", Epoch: 3, Nonce: 99}
	token   = handoff.Token{Attempt: attempt, Node: "td", Incarnation: 4, Generation: 5}
	shape   = handoff.Shape{Revision: "m@1", Layout: handoff.Digest{1}, Tokens: 40,
		Groups: []handoff.Group{{Name: "full", Layers: 2, Blocks: 3, BlockBytes: 64}, {Name: "ring", Layers: 1, Blocks: 1, BlockBytes: 8}},
		Items:  []handoff.Item{{Class: "sampler", Bytes: 12}}}
	pieces = shape.Pieces()
)

// cases are every frame with the parser that must give the value back.
var cases = []struct {
	kind  Kind
	frame []byte
	want  any
	parse func([]byte) (any, error)
}{
	{KindHello, AppendHello(nil, Hello{"td", 1, "tp", 2}), Hello{"td", 1, "tp", 2}, func(p []byte) (any, error) { return ParseHello(p) }},
	{KindHelloOK, AppendHelloOK(nil, HelloOK{"tp", 2}), HelloOK{"tp", 2}, func(p []byte) (any, error) { return ParseHelloOK(p) }},
	{KindPull, AppendPull(nil, Pull{attempt, true, []byte("cap"), ""}), Pull{attempt, true, []byte("cap"), ""}, func(p []byte) (any, error) { return ParsePull(p) }},
	{KindSource, AppendSource(nil, Source{7, handoff.SourceOpened, shape, []byte("layout")}), Source{7, handoff.SourceOpened, shape, []byte("layout")}, func(p []byte) (any, error) { return ParseSource(p) }},
	{KindReady, AppendRuns(nil, KindReady, []Run{{0, 3}, {5, 1}}), []Run{{0, 3}, {5, 1}}, func(p []byte) (any, error) { return ParseRuns(KindReady, p, pieces) }},
	{KindRead, AppendRuns(nil, KindRead, []Run{{0, 8}}), []Run{{0, 8}}, func(p []byte) (any, error) { return ParseRuns(KindRead, p, pieces) }},
	{KindSealed, AppendSealed(nil, Sealed{handoff.Digest{9}, make([]uint32, pieces)}), Sealed{handoff.Digest{9}, make([]uint32, pieces)}, func(p []byte) (any, error) { return ParseSealed(p, pieces) }},
	{KindQuestion, AppendQuestion(nil, Question{7, 2, handoff.Digest{9}, token, 11}), Question{7, 2, handoff.Digest{9}, token, 11}, func(p []byte) (any, error) { return ParseQuestion(p) }},
	{KindAnswer, AppendAnswer(nil, Answer{11, nil}), Answer{11, nil}, func(p []byte) (any, error) { return ParseAnswer(p) }},
	{KindAnswer, AppendAnswer(nil, Answer{11, handoff.Errorf(handoff.CodeClosed, "gone")}), Answer{11, handoff.Errorf(handoff.CodeClosed, "gone")}, func(p []byte) (any, error) { return ParseAnswer(p) }},
	{KindFinish, AppendFinish(nil, 7), handoff.GrantID(7), func(p []byte) (any, error) { return ParseGrant(KindFinish, p) }},
	{KindFinished, AppendFinished(nil, 7), handoff.GrantID(7), func(p []byte) (any, error) { return ParseGrant(KindFinished, p) }},
	{KindJoin, AppendJoin(nil, Pull{attempt, true, []byte("cap"), ""}), Pull{attempt, true, []byte("cap"), ""}, func(p []byte) (any, error) { return ParsePull(p) }},
	{KindJoined, AppendJoined(nil, 7), handoff.GrantID(7), func(p []byte) (any, error) { return ParseGrant(KindJoined, p) }},
	{KindCancel, AppendCancel(nil, 7), handoff.GrantID(7), func(p []byte) (any, error) { return ParseGrant(KindCancel, p) }},
	{KindPing, AppendPing(nil, Ping{1, 6000}), Ping{1, 6000}, func(p []byte) (any, error) { return ParsePing(p) }},
	{KindPong, AppendPong(nil, Pong{1, handoff.SourceSealed}), Pong{1, handoff.SourceSealed}, func(p []byte) (any, error) { return ParsePong(p) }},
	{KindError, AppendError(nil, handoff.Errorf(handoff.CodeDenied, "no")), handoff.Errorf(handoff.CodeDenied, "no"), func(p []byte) (any, error) { return ParseError(p) }},
}

func TestEveryFrameComesBackAsItWent(t *testing.T) {
	for _, c := range cases {
		t.Run(c.kind.String(), func(t *testing.T) {
			h, err := ParseHeader(c.frame[:HeaderBytes])
			if err != nil || h.Kind != c.kind || int(h.Length) != len(c.frame)-HeaderBytes {
				t.Fatalf("%+v, %v", h, err)
			}
			got, err := c.parse(c.frame[HeaderBytes:])
			if err != nil || !reflect.DeepEqual(got, c.want) {
				t.Fatalf("got %+v, %v; want %+v", got, err, c.want)
			}
		})
	}
}

func TestACutOrPaddedPayloadIsRefused(t *testing.T) {
	for _, c := range cases {
		p := c.frame[HeaderBytes:]
		for cut := range len(p) {
			if _, err := c.parse(p[:cut]); err == nil {
				t.Errorf("%s cut to %d of %d bytes was accepted", c.kind, cut, len(p))
			}
		}
		if _, err := c.parse(append(bytes.Clone(p), 0)); err == nil {
			t.Errorf("%s with a byte too many was accepted", c.kind)
		}
	}
}

const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// A PULL and a JOIN may carry their reader's trace. Without one they are, to the
// byte, what every daemon of this version reads.
func TestATraceIsCarriedWholeOrNotAtAll(t *testing.T) {
	plain := Pull{Attempt: attempt, Capability: []byte("cap")}
	traced := plain
	traced.Trace = parent
	for _, write := range []func([]byte, Pull) []byte{AppendPull, AppendJoin} {
		short, p := write(nil, plain)[HeaderBytes:], write(nil, traced)[HeaderBytes:]
		if !bytes.HasPrefix(p, short) || len(p) != len(short)+1+len(parent) {
			t.Fatalf("%x is not %x and a trace", p, short)
		}
		if got, err := ParsePull(p); err != nil || !reflect.DeepEqual(got, traced) {
			t.Fatalf("%+v, %v", got, err)
		}
		for cut := len(short) + 1; cut < len(p); cut++ {
			if _, err := ParsePull(p[:cut]); err == nil {
				t.Errorf("a trace cut to %d bytes was accepted", cut-len(short))
			}
		}
		if _, err := ParsePull(append(bytes.Clone(p), 0)); err == nil {
			t.Error("a byte behind the trace was accepted")
		}
	}
	for name, bad := range map[string]string{
		"text": "hello", "upper case": strings.ToUpper(parent), "a version of tomorrow": "01" + parent[2:], "more of it": parent + "-00",
		"no trace id": "00-" + strings.Repeat("0", 32) + parent[35:], "no parent": parent[:36] + strings.Repeat("0", 16) + parent[52:],
		"other separators": strings.ReplaceAll(parent, "-", "_"), "no hex": parent[:3] + "g" + parent[4:], "a long text": strings.Repeat("x", 255),
	} {
		p := traced
		p.Trace = bad
		if got, err := ParsePull(AppendPull(nil, p)[HeaderBytes:]); err == nil {
			t.Errorf("%s: taken as %q", name, got.Trace)
		}
	}
}

func TestABatchComesBackAsItWent(t *testing.T) {
	entries := []Entry{{0, 64, 1}, {6, 8, 2}}
	frame := AppendData(nil, entries)
	h, err := ParseHeader(frame[:HeaderBytes])
	if err != nil || h.Length != 4+24+72 {
		t.Fatalf("%+v, %v", h, err)
	}
	n, err := TableBytes(frame[HeaderBytes:HeaderBytes+4], h.Length)
	if err != nil || n != 24 {
		t.Fatal(n, err)
	}
	got, err := ParseTable(nil, frame[HeaderBytes+4:], h.Length)
	if err != nil || !reflect.DeepEqual(got, entries) {
		t.Fatal(got, err)
	}
	for _, length := range []uint32{99, 101} { // the bytes and the table must agree
		if _, err := ParseTable(nil, frame[HeaderBytes+4:], length); err == nil {
			t.Errorf("a batch of 100 bytes was accepted in a frame of %d", length)
		}
	}
}

func TestFrameBombsAreRefusedByTheirHeader(t *testing.T) {
	for k := KindHello; k < kindEnd; k++ {
		_, err := ParseHeader(AppendHeader(nil, k, kinds[k].max+1))
		if !errors.Is(err, &handoff.Error{Code: handoff.CodeTooLarge}) {
			t.Errorf("%s: %v", k, err)
		}
	}
	if _, err := ParseSealed(make([]byte, 40), handoff.MaxPieces); err == nil {
		t.Error("a short manifest of many pieces was accepted")
	}
	bomb := AppendRuns(nil, KindRead, []Run{{0, 1 << 31}})
	if _, err := ParseRuns(KindRead, bomb[HeaderBytes:], pieces); err == nil {
		t.Error("a run past the end was accepted")
	}
	var many []Run
	for range 9 {
		many = append(many, Run{0, 8})
	}
	if _, err := ParseRuns(KindRead, AppendRuns(nil, KindRead, many)[HeaderBytes:], pieces); err == nil {
		t.Error("the same pieces nine times over were accepted")
	}
}

func TestADamagedHeaderIsRefused(t *testing.T) {
	good := AppendHeader(nil, KindRead, 12)
	for i := range HeaderBytes * 8 {
		b := bytes.Clone(good)
		b[i/8] ^= 1 << (i % 8)
		if _, err := ParseHeader(b); err == nil {
			t.Fatalf("bit %d flipped and accepted", i)
		}
	}
}

func TestAnAnswerWithoutAVerdictIsNotYes(t *testing.T) {
	for _, p := range [][]byte{nil, make([]byte, 11), append(make([]byte, 8), 3, 0, 0), append(make([]byte, 8), 2, 0, 0)} {
		a, err := ParseAnswer(p)
		if err == nil || a.Refusal == nil {
			t.Fatalf("%v gave %+v", p, a)
		}
	}
}

func TestALongRefusalIsCutNotDropped(t *testing.T) {
	frame := AppendError(nil, handoff.Errorf(handoff.CodeEngine, "%s", strings.Repeat("x", 2000)))
	if h, err := ParseHeader(frame[:HeaderBytes]); err != nil || h.Kind != KindError {
		t.Fatal(h, err)
	}
	if e, err := ParseError(frame[HeaderBytes:]); err != nil || e.Code != handoff.CodeEngine {
		t.Fatal(e, err)
	}
}

func TestPiecesMergeIntoRuns(t *testing.T) {
	if got := Runs([]uint32{3, 4, 5, 9, 0, 1}); !reflect.DeepEqual(got, []Run{{3, 3}, {9, 1}, {0, 2}}) {
		t.Fatal(got)
	}
}

func FuzzParse(f *testing.F) {
	for _, c := range cases {
		f.Add(uint8(c.kind), c.frame[HeaderBytes:])
	}
	f.Add(uint8(KindData), AppendData(nil, []Entry{{0, 64, 1}})[HeaderBytes:])
	f.Add(uint8(KindPull), AppendPull(nil, Pull{attempt, false, []byte("cap"), parent})[HeaderBytes:])
	f.Add(uint8(KindJoin), AppendJoin(nil, Pull{attempt, true, nil, parent})[HeaderBytes:])
	f.Fuzz(func(t *testing.T, kind uint8, p []byte) {
		if Kind(kind) == KindData {
			fuzzData(t, p)
			return
		}
		for _, c := range cases {
			if uint8(c.kind) != kind {
				continue
			}
			got, err := c.parse(p)
			if err != nil {
				continue
			}
			if again, err := c.parse(encode(c.kind, got)[HeaderBytes:]); err != nil || !reflect.DeepEqual(got, again) {
				t.Fatalf("%s: %+v became %+v, %v", c.kind, got, again, err)
			}
		}
	})
}

func fuzzData(t *testing.T, p []byte) {
	if len(p) < DataCountBytes {
		return
	}
	n, err := TableBytes(p[:4], uint32(len(p)))
	if err != nil {
		return
	}
	entries, err := ParseTable(nil, p[4:4+n], uint32(len(p)))
	if err != nil {
		return
	}
	sum := 4 + n
	for _, e := range entries {
		sum += int(e.Length)
	}
	if sum != len(p) || len(entries) > MaxBatchPieces {
		t.Fatalf("%d entries cover %d of %d bytes", len(entries), sum, len(p))
	}
}

// encode is the inverse of the parsers, for the round trip.
func encode(k Kind, v any) []byte {
	switch v := v.(type) {
	case Hello:
		return AppendHello(nil, v)
	case HelloOK:
		return AppendHelloOK(nil, v)
	case Pull:
		return AppendPull(nil, v)
	case Source:
		return AppendSource(nil, v)
	case []Run:
		return AppendRuns(nil, k, v)
	case Sealed:
		return AppendSealed(nil, v)
	case Question:
		return AppendQuestion(nil, v)
	case Answer:
		return AppendAnswer(nil, v)
	case handoff.GrantID:
		return appendGrant(nil, k, v)
	case Ping:
		return AppendPing(nil, v)
	case Pong:
		return AppendPong(nil, v)
	case *handoff.Error:
		return AppendError(nil, v)
	}
	panic("no encoder")
}
