package claimcheck

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"

	"github.com/surehand/surehand/contracts/handoff"
)

// KeyBytes is the length of a sealing key: AES-256.
const KeyBytes = 32

// Sealer seals and opens bodies. The first key seals, every key opens, so that
// a fleet changes its key by adding the new one everywhere, then moving it first.
type Sealer struct{ keys []cipher.AEAD }

// NewSealer takes the fleet's keys; at least one.
func NewSealer(keys ...[]byte) (*Sealer, error) {
	if len(keys) == 0 {
		return nil, handoff.Errorf(handoff.CodeInvalid, "no sealing key")
	}
	s := &Sealer{}
	for i, k := range keys {
		if len(k) != KeyBytes {
			return nil, handoff.Errorf(handoff.CodeInvalid, "sealing key %d has %d bytes, want %d", i+1, len(k), KeyBytes)
		}
		block, err := aes.NewCipher(k)
		if err != nil {
			return nil, handoff.Errorf(handoff.CodeInvalid, "sealing key %d is unusable", i+1)
		}
		aead, err := cipher.NewGCMWithRandomNonce(block)
		if err != nil {
			return nil, handoff.Errorf(handoff.CodeInvalid, "sealing key %d is unusable", i+1)
		}
		s.keys = append(s.keys, aead)
	}
	return s, nil
}

// Seal closes raw under its name. The nonce is random: keys seal far fewer than
// the 2³² bodies that this allows.
func (s *Sealer) Seal(name string, raw []byte) []byte {
	return s.keys[0].Seal(nil, nil, raw, []byte(name))
}

// Open opens what was sealed under this very name by one of the keys.
func (s *Sealer) Open(name string, sealed []byte) ([]byte, error) {
	for _, k := range s.keys {
		if raw, err := k.Open(nil, nil, sealed, []byte(name)); err == nil {
			return raw, nil
		}
	}
	return nil, handoff.Errorf(handoff.CodeGone, "the body kept does not open under our keys")
}

// NewKey draws a sealing key.
func NewKey() ([]byte, error) {
	k := make([]byte, KeyBytes)
	if _, err := rand.Read(k); err != nil {
		return nil, handoff.Errorf(handoff.CodeUnavailable, "random source: %v", err)
	}
	return k, nil
}
