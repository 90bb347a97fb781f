//go:build e2e

package llamacpp

var lengths = []int{2, 16, 17, 130}
