//go:build e2e

package guarded

const patient = true
