//go:build e2e

package llamacpp

const asked = true
