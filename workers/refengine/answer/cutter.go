package answer

import (
	"strings"
	"unicode/utf8"
)

// Cutter turns tokens' bytes into pieces. It is for one goroutine.
type Cutter struct {
	stops  []string
	held   []byte // shown to nobody yet
	tokens uint32 // that held, or an empty piece, stands for
}

// NewCutter cuts at the first of the stop strings; empty ones are ignored.
func NewCutter(stops []string) *Cutter {
	c := &Cutter{}
	for _, s := range stops {
		if s != "" {
			c.stops = append(c.stops, s)
		}
	}
	return c
}

// Piece is a stretch of text and the number of tokens since the piece before. A
// token whose last bytes are held back counts with the piece that shows its
// first; so the last piece may have text and no token.
type Piece struct {
	Text   []byte
	Tokens uint32
}

// Push takes one token's bytes and gives what may be shown now. Stopped says
// that a stop string is complete: the piece is the last.
func (c *Cutter) Push(text []byte) (p Piece, stopped bool) {
	from := len(c.held)
	c.held = append(c.held, text...)
	c.tokens++
	if at := c.stop(from); at >= 0 {
		c.held = c.held[:at]
		return c.Flush(), true
	}
	show := len(c.held) - max(c.partialStop(), partialRune(c.held))
	if show == 0 {
		return Piece{}, false
	}
	p = Piece{clean(c.held[:show]), c.tokens}
	c.held = append(c.held[:0], c.held[show:]...)
	c.tokens = 0
	return p, false
}

// Flush gives what is still held: the completion is over.
func (c *Cutter) Flush() Piece {
	p := Piece{clean(c.held), c.tokens}
	c.held, c.tokens = nil, 0
	return p
}

// stop finds where the first stop string begins, of those that end in the bytes
// from from on; -1: none.
func (c *Cutter) stop(from int) int {
	first := -1
	for _, s := range c.stops {
		begin := max(0, from-len(s)+1)
		if at := strings.Index(string(c.held[begin:]), s); at >= 0 && (first < 0 || begin+at < first) {
			first = begin + at
		}
	}
	return first
}

// partialStop is the length of the longest tail that begins a stop string.
func (c *Cutter) partialStop() int {
	longest := 0
	for _, s := range c.stops {
		for n := min(len(s)-1, len(c.held)); n > longest; n-- {
			if string(c.held[len(c.held)-n:]) == s[:n] {
				longest = n
			}
		}
	}
	return longest
}

// partialRune is the length of a tail that begins a character and lacks its end.
func partialRune(b []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(b); n++ {
		tail := b[len(b)-n:]
		if !utf8.RuneStart(tail[0]) {
			continue
		}
		if utf8.FullRune(tail) {
			return 0
		}
		return n
	}
	return 0
}

// clean copies b as valid UTF-8.
func clean(b []byte) []byte {
	return []byte(strings.ToValidUTF8(string(b), "\uFFFD"))
}
