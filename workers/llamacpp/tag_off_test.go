//go:build !e2e

package llamacpp

// lengths of prompts around the edges of blocks and chunks; with -tags e2e there are more.
var lengths = []int{2, 17}
