//go:build !e2e

package guarded

// patient: build what takes minutes, and probe a thousand times.
const patient = false
