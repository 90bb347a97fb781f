package model

import "errors"

// What can go wrong. None of them is worth a retry on the same state.
var (
	// ErrWeights: the weights are not the ones this code was built for.
	ErrWeights = errors.New("model: weights damaged or of another architecture")
	// ErrInput: a token, chunk or position out of bounds; the request is at fault.
	ErrInput = errors.New("model: input out of bounds")
	// ErrState: the state handed in cannot be one that this model wrote.
	ErrState = errors.New("model: state damaged")
	// ErrNotFinite: the logits are not numbers, so the state was overwritten or
	// never written. No token may be drawn from them.
	ErrNotFinite = errors.New("model: logits not finite")
)
