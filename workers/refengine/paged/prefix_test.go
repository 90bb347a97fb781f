package paged

import (
	"errors"
	"slices"
	"testing"
)

func text(s string) (tokens []int) {
	for _, b := range []byte(s) {
		tokens = append(tokens, int(b))
	}
	return tokens
}

// cached puts the whole blocks of s into the cache, held by nobody.
func cached(t *testing.T, a *Arena, salt Salt, s string) []Block {
	t.Helper()
	b := allocate(t, a, len(s)/4)
	if err := a.Insert(salt, text(s), b); err != nil {
		t.Fatal(err)
	}
	if err := a.Release(b); err != nil {
		t.Fatal(err)
	}
	return b
}

func TestAPrefixHitNeedsTheSameTokensFromTheFirstOn(t *testing.T) {
	a := small(t, 8, false)
	b := cached(t, a, "tenant", "abcdefghijkl")
	for query, want := range map[string][]Block{
		"abcdefghijklm": b,
		"abcdefghijkl":  b[:2], // the last token must be computed
		"abcdefghijk":   b[:2],
		"abcdefgXijklm": b[:1],
		"Xbcdefghijklm": nil,
		"efghijklm":     nil, // the same block elsewhere is another block
		"abcd":          nil,
		"":              nil,
	} {
		got := a.Lookup("tenant", text(query))
		if !slices.Equal(got, want) {
			t.Errorf("%q hits %v, want %v", query, got, want)
		}
		if err := a.Release(got); err != nil {
			t.Fatal(err)
		}
	}
	if c := a.Count(); c.Cached != 3 || c.Held != 0 {
		t.Errorf("after all: %+v", c)
	}
}

func TestNoHitCrossesASalt(t *testing.T) {
	a := small(t, 16, false)
	cached(t, a, "tenant", "abcdefgh")
	cached(t, a, "", "abcdefgh")
	for _, salt := range []Salt{"", "tenan", "tenant ", "tenant\x00", "TENANT", "other"} {
		if hit := a.Lookup(salt, text("abcdefghi")); hit != nil {
			t.Errorf("salt %q hits %v", salt, hit)
		}
	}
}

func FuzzNoHitCrossesASalt(f *testing.F) {
	f.Add("a", "b", []byte("abcdefgh"))
	f.Fuzz(func(t *testing.T, one, other string, tokens []byte) {
		if one == other || len(tokens) > 64 {
			return
		}
		a, s := small(t, 16, false), string(tokens)
		cached(t, a, Salt(one), s)
		if hit := a.Lookup(Salt(other), append(text(s), 0)); hit != nil {
			t.Fatalf("salt %q hits %q's blocks %v", other, one, hit)
		}
	})
}

func TestEvictionTakesTheLeastRecentlyUsedUnreferencedTailFirst(t *testing.T) {
	a := small(t, 6, false)
	old := cached(t, a, "t", "aaaabbbb")
	cached(t, a, "t", "ccccdddd")
	used := a.Lookup("t", text("aaaabbbbx")) // old is held now, so it may not go
	if err := a.Release(allocate(t, a, 3)); err != nil {
		t.Fatal(err)
	}
	if hit := a.Lookup("t", text("ccccddddx")); len(hit) != 1 {
		t.Errorf("of the other prefix %d blocks are left, want its first", len(hit))
	}
	if _, err := a.Allocate(4); !errors.Is(err, ErrFull) {
		t.Errorf("evicted a block in use: %v", err)
	}
	if !slices.Equal(used, old) {
		t.Errorf("hit %v, cached %v", used, old)
	}
}

func TestInsertKeepsTheFirstBlockOfAKey(t *testing.T) {
	a := small(t, 4, false)
	first, second := allocate(t, a, 1), allocate(t, a, 1)
	for _, b := range [][]Block{first, second, first} {
		if err := a.Insert("t", text("abcd"), b); err != nil {
			t.Fatal(err)
		}
	}
	if hit := a.Lookup("t", text("abcde")); !slices.Equal(hit, first) {
		t.Errorf("hit %v, want %v", hit, first)
	}
	if err := a.Release(second); err != nil {
		t.Fatal(err)
	}
	if err := a.Insert("t", text("efgh"), second); !errors.Is(err, ErrNotHeld) {
		t.Errorf("cached a block that nobody holds: %v", err)
	}
}
