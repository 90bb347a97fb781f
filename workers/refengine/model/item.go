package model

import (
	"encoding/binary"
	"fmt"
)

// Item is a named range of a sequence's items slot. A manifest lists each by
// name, and a commit that lacks one is refused.
type Item struct {
	Name          string
	Offset, Bytes int
}

// Sizes of the small state items, each aligned to 8 bytes in the slot.
const (
	HistoryBytes    = 2 * history
	SamplerBytes    = 24
	FirstTokenBytes = 4
	ItemsBytes      = 64
)

// The small state items. The ring is an item too, in a slot of its own.
var (
	HistoryItem    = Item{"ngram_history", 0, HistoryBytes}
	SamplerItem    = Item{"sampler", 8, SamplerBytes}
	FirstTokenItem = Item{"first_token", 32, FirstTokenBytes}
)

// Of is the item's range of a sequence's items slot.
func (i Item) Of(slot []byte) []byte { return slot[i.Offset : i.Offset+i.Bytes : i.Offset+i.Bytes] }

// PutFirstToken records the token that P drew from the prompt's last logits.
func PutFirstToken(item []byte, token int) {
	binary.LittleEndian.PutUint32(item, uint32(token))
}

// FirstToken reads it back; a value that cannot have been drawn is damage.
func FirstToken(item []byte) (int, error) {
	if len(item) != FirstTokenBytes {
		return 0, fmt.Errorf("%w: first token of %d bytes", ErrState, len(item))
	}
	token := binary.LittleEndian.Uint32(item)
	if token > EOS {
		return 0, fmt.Errorf("%w: first token is no text", ErrState)
	}
	return int(token), nil
}
