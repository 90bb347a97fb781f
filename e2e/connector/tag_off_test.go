//go:build !vllm

package connector

const asked = false
