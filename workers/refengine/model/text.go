package model

import "fmt"

// Encode makes the tokens of a prompt: BOS, its bytes, SEP.
func Encode(prompt string) ([]int, error) {
	if len(prompt)+2 >= MaxPositions {
		return nil, fmt.Errorf("%w: prompt of %d bytes", ErrInput, len(prompt))
	}
	tokens := make([]int, 0, len(prompt)+2)
	tokens = append(tokens, BOS)
	for _, b := range []byte(prompt) {
		tokens = append(tokens, int(b))
	}
	return append(tokens, SEP), nil
}

// Text is what a drawn token adds to the answer: one byte, or nothing for EOS.
func Text(token int) []byte {
	if token < 0 || token > 255 {
		return nil
	}
	return []byte{byte(token)}
}
