package paged

import (
	"container/list"
	"crypto/sha256"
	"encoding/binary"
)

// key names a block's contents: its salt and every token up to its last one.
type key [sha256.Size]byte

// Salt separates tenants (and, if they wish, their users): blocks are shared
// only under the same salt. The empty salt shares nothing.
type Salt string

// prefixCache knows which block holds which key. A cached block that nobody
// holds rests in idle, oldest at the front.
type prefixCache struct {
	blocks map[key]Block
	keys   map[Block]key
	idle   *list.List // of Block
	place  map[Block]*list.Element
}

func newPrefixCache() prefixCache {
	return prefixCache{map[key]Block{}, map[Block]key{}, list.New(), map[Block]*list.Element{}}
}

// chain is the keys of the first n blocks of tokens: each is the hash of the one
// before and of its tokens, the first of the salt.
func chain(salt Salt, tokens []int, blockTokens, n int) []key {
	last := sha256.Sum256([]byte("surehand prefix salt\x00" + string(salt)))
	keys := make([]key, n)
	buffer := make([]byte, 0, sha256.Size+8*blockTokens)
	for i := range keys {
		buffer = append(buffer[:0], last[:]...)
		for _, token := range tokens[i*blockTokens : (i+1)*blockTokens] {
			buffer = binary.LittleEndian.AppendUint64(buffer, uint64(token))
		}
		last = sha256.Sum256(buffer)
		keys[i] = last
	}
	return keys
}

// Lookup finds the longest cached run of whole blocks that tokens begin with and
// adds a holder to each. The last token is never part of it: its logits must be
// computed.
func (a *Arena) Lookup(salt Salt, tokens []int) []Block {
	if salt == "" || len(tokens) == 0 {
		return nil
	}
	keys := chain(salt, tokens, a.layout.BlockTokens, (len(tokens)-1)/a.layout.BlockTokens)
	a.mu.Lock()
	defer a.mu.Unlock()
	var hit []Block
	for _, k := range keys {
		b, ok := a.mu.prefix.blocks[k]
		if !ok {
			break
		}
		a.mu.prefix.wake(b)
		a.mu.holders[b]++
		hit = append(hit, b)
	}
	return hit
}

// Insert offers the whole blocks of tokens, which hold their final KV and which
// the caller holds and will not write again. A key that is cached already keeps
// its first block, and so do blocks that are cached already; repeating an Insert
// changes nothing.
func (a *Arena) Insert(salt Salt, tokens []int, blocks []Block) error {
	if salt == "" {
		return nil
	}
	n := min(len(blocks), len(tokens)/a.layout.BlockTokens)
	keys := chain(salt, tokens, a.layout.BlockTokens, n)
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.held(blocks[:n]); err != nil {
		return err
	}
	for i, k := range keys {
		a.mu.prefix.add(k, blocks[i])
	}
	return nil
}

func (c *prefixCache) add(k key, b Block) {
	_, known := c.blocks[k]
	_, used := c.keys[b]
	if known || used {
		return
	}
	c.blocks[k], c.keys[b] = b, k
}

// rest takes a block that lost its last holder, if it is cached.
func (c *prefixCache) rest(b Block) bool {
	if _, ok := c.keys[b]; !ok {
		return false
	}
	c.place[b] = c.idle.PushBack(b)
	return true
}

// wake takes a block out of idle when it gets a holder again.
func (c *prefixCache) wake(b Block) {
	if e, ok := c.place[b]; ok {
		c.idle.Remove(e)
		delete(c.place, b)
	}
}

// evict forgets the block that has rested longest. Later blocks of its chain
// cannot be found any more; they go as they come to the front.
func (c *prefixCache) evict() Block {
	b := c.idle.Front().Value.(Block)
	c.wake(b)
	delete(c.blocks, c.keys[b])
	delete(c.keys, b)
	return b
}
