package model

import (
	"bytes"
	"errors"
	"testing"
)

func TestItemsFitTheSlotWithoutOverlap(t *testing.T) {
	end := 0
	for _, item := range []Item{HistoryItem, SamplerItem, FirstTokenItem} {
		if item.Offset < end || item.Bytes <= 0 || item.Name == "" {
			t.Errorf("%+v begins before %d", item, end)
		}
		end = item.Offset + item.Bytes
	}
	if end > ItemsBytes {
		t.Errorf("items end at %d of %d bytes", end, ItemsBytes)
	}
}

func FuzzRestoredSamplerSavesTheSameBytesOrIsRefused(f *testing.F) {
	f.Add(bytes.Repeat([]byte{0xFF}, SamplerBytes))
	f.Add(append([]byte{0, 0, 0x80, 0x3F, 0, 0, 0x80, 0x3F}, make([]byte, 16)...))
	f.Fuzz(func(t *testing.T, item []byte) {
		s, err := RestoreSampler(item)
		if err != nil {
			if !errors.Is(err, ErrState) {
				t.Fatal(err)
			}
			return
		}
		again := make([]byte, SamplerBytes)
		if err := s.Save(again); err != nil || !bytes.Equal(again, item) {
			t.Fatalf("restored %x, saved %x, %v", item, again, err)
		}
	})
}

func FuzzEncodedPromptIsAccepted(f *testing.F) {
	f.Add("")
	f.Add("Emma\x00\xff")
	f.Fuzz(func(t *testing.T, prompt string) {
		tokens, err := Encode(prompt)
		if err != nil {
			if !errors.Is(err, ErrInput) || len(prompt)+2 < MaxPositions {
				t.Fatal(err)
			}
			return
		}
		var back []byte
		for _, token := range tokens {
			back = append(back, Text(token)...)
		}
		if tokens[0] != BOS || tokens[len(tokens)-1] != SEP || string(back) != prompt {
			t.Fatalf("%q became %v", prompt, tokens)
		}
	})
}
