package model

// The architecture. These are constants, not fields, so that the kernels'
// loops have fixed bounds; a weights file made for others is refused.
const (
	layers    = 4
	ringLayer = 1 // the one sliding-window layer
	dim       = 128
	heads     = 8
	kvHeads   = 2
	headDim   = 16
	hidden    = 512
	window    = 128
	vocab     = 260

	groupHeads = heads / kvHeads   // query heads that share a KV head
	kvDim      = kvHeads * headDim // floats of K (or V) of one position
	runBytes   = 2 * BlockTokens * kvDim * 4
	ringBytes  = window / BlockTokens * runBytes
	history    = 3 // tokens before the current one that the n-gram tables see
	ropeBase   = 1000.0
	normEps    = 1e-5
)

// gramBuckets are the sizes of the tables for the last 2, 3 and 4 tokens.
var gramBuckets = [history]int{4096, 8192, 8192}

// Tokens 0..255 are bytes; these follow.
const (
	EOS  = 256 // ends an answer
	BOS  = 257 // begins a prompt
	SEP  = 258 // ends a prompt: the answer follows
	None = 259 // the n-gram history before the first token
)

// Limits.
const (
	BlockTokens  = 16   // tokens of one KV block
	MaxPositions = 8192 // prompt and answer together
	MaxChunk     = 256  // tokens of one Forward
)

// Config says what a caller needs to lay out memory and to compare two engines.
type Config struct {
	Layers       int // all layers
	PagedLayers  int // those with paged KV
	Heads        int
	KVHeads      int
	HeadDim      int
	Window       int // positions the ring keeps
	NGram        int // tokens in the n-gram history
	Vocab        int
	MaxPositions int
	BlockTokens  int
	RunBytes     int // one (block, layer): K[16][kv heads][head dim], then V
	RingBytes    int // the ring of one sequence: Window/16 such runs
	ItemsBytes   int // the small state items of one sequence
}

// Shape is the configuration of the embedded model.
func Shape() Config {
	return Config{
		Layers: layers, PagedLayers: layers - 1, Heads: heads, KVHeads: kvHeads,
		HeadDim: headDim, Window: window, NGram: history, Vocab: vocab,
		MaxPositions: MaxPositions, BlockTokens: BlockTokens, RunBytes: runBytes,
		RingBytes: ringBytes, ItemsBytes: ItemsBytes,
	}
}
