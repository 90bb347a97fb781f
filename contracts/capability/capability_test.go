package capability

import (
	"errors"
	"testing"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
)

var right = Right{
	Grant: 7, Attempt: handoff.Attempt{Handoff: "h-1", Epoch: 2, Nonce: 0xfeed}, Source: "tp", Incarnation: 3,
	Holder: "td", Direction: DirectionRead, Pieces: Range{10, 50}, Expiry: time.Minute,
}

func present() Presented {
	return Presented{Attempt: right.Attempt, Source: "tp", Incarnation: 3, Holder: "td", Now: time.Second}
}

func mint(t *testing.T, k Key) []byte {
	t.Helper()
	b, err := Mint(k, right)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func refused(t *testing.T, err error, code handoff.Code) {
	t.Helper()
	if !errors.Is(err, &handoff.Error{Code: code}) {
		t.Fatalf("got %v, want %s", err, code)
	}
}

func TestTheHolderMayReadWhatWasMinted(t *testing.T) {
	k := NewKey()
	got, err := Verify(k, mint(t, k), present())
	if err != nil || got != right {
		t.Fatalf("%+v, %v", got, err)
	}
}

// A token says by its first byte that its daemon takes a trace; one of a release
// before does not, and is read all the same.
func TestATokenSaysWhetherItsDaemonTakesATrace(t *testing.T) {
	k := NewKey()
	now := mint(t, k)
	narrow, err := Attenuate(now, right.Pieces)
	if err != nil || !TakesTrace(now) || !TakesTrace(narrow) {
		t.Fatalf("%x and %x say no, %v", now, narrow, err)
	}
	p, err := parse(now)
	if err != nil {
		t.Fatal(err)
	}
	base := append([]byte{versionPlain}, p.base[1:]...)
	old := append(append(append([]byte(nil), base...), 0), sum(k[:], base)...)
	if got, err := Verify(k, old, present()); TakesTrace(old) || err != nil || got != right {
		t.Fatalf("%v, %+v, %v", TakesTrace(old), got, err)
	}
	for _, none := range [][]byte{nil, {}, {0}, {3}} {
		if TakesTrace(none) {
			t.Errorf("%x takes a trace", none)
		}
	}
}

func TestNarrowingNeedsNoKeyAndHoldsForEver(t *testing.T) {
	k := NewKey()
	narrow, err := Attenuate(mint(t, k), Range{20, 30})
	if err != nil {
		t.Fatal(err)
	}
	narrower, err := Attenuate(narrow, Range{25, 26})
	if err != nil {
		t.Fatal(err)
	}
	got, err := Verify(k, narrower, present())
	if err != nil || got.Pieces != (Range{25, 26}) {
		t.Fatalf("%+v, %v", got, err)
	}
	_, err = Attenuate(narrow, Range{19, 30})
	refused(t, err, handoff.CodeDenied)
	_, err = Attenuate(narrow, Range{25, 25})
	refused(t, err, handoff.CodeDenied)
}

func TestNarrowingIsBounded(t *testing.T) {
	b := mint(t, NewKey())
	var err error
	for range MaxLinks {
		if b, err = Attenuate(b, right.Pieces); err != nil {
			t.Fatal(err)
		}
	}
	_, err = Attenuate(b, right.Pieces)
	refused(t, err, handoff.CodeTooLarge)
}

func TestALinkCannotBeTakenAwayOrWidened(t *testing.T) {
	k := NewKey()
	full := mint(t, k)
	narrow, err := Attenuate(full, Range{20, 30})
	if err != nil {
		t.Fatal(err)
	}
	p, err := parse(narrow)
	if err != nil {
		t.Fatal(err)
	}
	without := append(append(append([]byte(nil), p.base...), 0), p.mac...)
	_, err = Verify(k, without, present())
	refused(t, err, handoff.CodeDenied)

	wide := append(append([]byte(nil), p.base...), 2)
	wide = appendLink(appendLink(wide, Range{20, 30}), Range{10, 50})
	wide = append(wide, sum(p.mac, appendLink(nil, Range{10, 50}))...) // a rightly chained link that widens
	_, err = Verify(k, wide, present())
	refused(t, err, handoff.CodeDenied)
}

func TestNobodyElseMayUseIt(t *testing.T) {
	k := NewKey()
	b := mint(t, k)
	for name, c := range map[string]struct {
		change func(*Presented)
		code   handoff.Code
	}{
		"other holder":      {func(p *Presented) { p.Holder = "thief" }, handoff.CodeDenied},
		"other attempt":     {func(p *Presented) { p.Attempt.Nonce++ }, handoff.CodeDenied},
		"other incarnation": {func(p *Presented) { p.Incarnation++ }, handoff.CodeStaleIncarnation},
		"other daemon":      {func(p *Presented) { p.Source = "tq" }, handoff.CodeStaleIncarnation},
		"expired":           {func(p *Presented) { p.Now = time.Minute }, handoff.CodeDenied},
	} {
		t.Run(name, func(t *testing.T) {
			p := present()
			c.change(&p)
			_, err := Verify(k, b, p)
			refused(t, err, c.code)
		})
	}
	later := present()
	later.Incarnation++
	_, err := Verify(NewKey(), b, later) // the next life has another key as well
	refused(t, err, handoff.CodeStaleIncarnation)
	_, err = Verify(NewKey(), b, present())
	refused(t, err, handoff.CodeDenied)
}

func TestEveryFlippedBitIsRefused(t *testing.T) {
	k := NewKey()
	b, err := Attenuate(mint(t, k), Range{20, 30})
	if err != nil {
		t.Fatal(err)
	}
	for i := range len(b) * 8 {
		forged := append([]byte(nil), b...)
		forged[i/8] ^= 1 << (i % 8)
		if _, err := Verify(k, forged, present()); err == nil {
			t.Fatalf("bit %d of byte %d flipped and accepted", i%8, i/8)
		}
	}
}

func TestMalformedRightsAreNotMinted(t *testing.T) {
	for name, change := range map[string]func(*Right){
		"no holder":      func(r *Right) { r.Holder = "" },
		"no source":      func(r *Right) { r.Source = "" },
		"no incarnation": func(r *Right) { r.Incarnation = 0 },
		"write":          func(r *Right) { r.Direction = 2 },
		"empty range":    func(r *Right) { r.Pieces = Range{5, 5} },
		"endless range":  func(r *Right) { r.Pieces.To = handoff.MaxPieces + 1 },
		"no expiry":      func(r *Right) { r.Expiry = 0 },
		"no attempt":     func(r *Right) { r.Attempt = handoff.Attempt{} },
	} {
		t.Run(name, func(t *testing.T) {
			r := right
			change(&r)
			_, err := Mint(NewKey(), r)
			refused(t, err, handoff.CodeInvalid)
		})
	}
}

func FuzzVerify(f *testing.F) {
	var k Key
	b, err := Mint(k, right)
	if err != nil {
		f.Fatal(err)
	}
	n, err := Attenuate(b, Range{20, 30})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add(n)
	f.Fuzz(func(t *testing.T, token []byte) {
		got, err := Verify(k, token, present())
		if err != nil {
			return
		}
		// Whatever passes was made by Mint and Attenuate alone: same right, no wider.
		if !got.Pieces.Within(right.Pieces) {
			t.Fatalf("widened to %+v", got.Pieces)
		}
		got.Pieces = right.Pieces
		if got != right {
			t.Fatalf("forged %+v", got)
		}
	})
}
