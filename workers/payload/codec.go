// Package payload seals what Temporal keeps of handoffs: a codec for workers
// and clients, and the codec server by which Temporal's UI shows sealed payloads
// to operators. Prompts and answers are in no payload, sealed or not.
package payload

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/hex"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
	"google.golang.org/protobuf/proto"

	"github.com/surehand/surehand/contracts/handoff"
)

const (
	// KeyBytes is the length of a key: AES-256.
	KeyBytes = 32
	// MaxKeys bounds the keys of one file.
	MaxKeys = 16

	encoding   = "binary/surehand-sealed"
	metaKey    = "surehand-key"
	idBytes    = 8
	idPurpose  = "surehand payload key id\x00"
	sealedName = "surehand payload v1\x00" // bound to what is sealed, with the key's id
)

// Codec seals with its first key and opens with any; a payload names its key.
type Codec struct {
	first string
	keys  map[string]cipher.AEAD
}

var _ converter.PayloadCodec = (*Codec)(nil)

// New takes the fleet's keys, the one that seals first. A key is changed by
// adding the new one everywhere, then moving it first, and taken away once no
// history of it is retained.
func New(keys ...[]byte) (*Codec, error) {
	if len(keys) == 0 || len(keys) > MaxKeys {
		return nil, handoff.Errorf(handoff.CodeInvalid, "%d payload keys, want 1..%d", len(keys), MaxKeys)
	}
	c := &Codec{first: KeyID(keys[0]), keys: map[string]cipher.AEAD{}}
	for i, k := range keys {
		if len(k) != KeyBytes {
			return nil, handoff.Errorf(handoff.CodeInvalid, "payload key %d has %d bytes, want %d", i+1, len(k), KeyBytes)
		}
		block, err := aes.NewCipher(k)
		if err != nil {
			return nil, handoff.Errorf(handoff.CodeInvalid, "payload key %d is unusable", i+1)
		}
		// Random nonces: a key seals far fewer than the 2³² payloads that this allows.
		if c.keys[KeyID(k)], err = cipher.NewGCMWithRandomNonce(block); err != nil {
			return nil, handoff.Errorf(handoff.CodeInvalid, "payload key %d is unusable", i+1)
		}
	}
	return c, nil
}

// KeyID names a key in public.
func KeyID(key []byte) string {
	sum := sha256.Sum256(append([]byte(idPurpose), key...))
	return hex.EncodeToString(sum[:idBytes])
}

// Encode seals payloads whole, with what their metadata says.
func (c *Codec) Encode(in []*commonpb.Payload) ([]*commonpb.Payload, error) {
	out := make([]*commonpb.Payload, len(in))
	for i, p := range in {
		raw, err := proto.Marshal(p)
		if err != nil {
			return nil, handoff.Errorf(handoff.CodeInternal, "payload: %s", err)
		}
		out[i] = &commonpb.Payload{Data: c.keys[c.first].Seal(nil, nil, raw, bound(c.first)),
			Metadata: map[string][]byte{converter.MetadataEncoding: []byte(encoding), metaKey: []byte(c.first)}}
	}
	return out, nil
}

// Decode opens what is sealed. What is not was written before there were keys,
// and is given back as it is; a sealed one that does not open is an error.
func (c *Codec) Decode(in []*commonpb.Payload) ([]*commonpb.Payload, error) {
	out := make([]*commonpb.Payload, len(in))
	for i, p := range in {
		if string(p.GetMetadata()[converter.MetadataEncoding]) != encoding {
			out[i] = p
			continue
		}
		var err error
		if out[i], err = c.open(p); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (c *Codec) open(p *commonpb.Payload) (*commonpb.Payload, error) {
	id := string(p.GetMetadata()[metaKey])
	key := c.keys[id]
	if key == nil {
		return nil, handoff.Errorf(handoff.CodeGone, "the payload is sealed under a key that is not here")
	}
	raw, err := key.Open(nil, nil, p.GetData(), bound(id))
	if err != nil {
		return nil, handoff.Errorf(handoff.CodeMismatch, "the payload was changed: it does not open under its key %s", id)
	}
	out := new(commonpb.Payload)
	if err := proto.Unmarshal(raw, out); err != nil {
		return nil, handoff.Errorf(handoff.CodeInternal, "the payload opened to no payload")
	}
	return out, nil
}

func bound(id string) []byte { return []byte(sealedName + id) }

// Converter seals with c; without one it is Temporal's own.
func Converter(c *Codec) converter.DataConverter {
	if c == nil {
		return converter.GetDefaultDataConverter()
	}
	return converter.NewCodecDataConverter(converter.GetDefaultDataConverter(), c)
}
