//go:build !vllm

package vllm

const asked = false
