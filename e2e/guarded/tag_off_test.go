//go:build !e2e

package guarded

// patient: build what takes minutes, and probe so often that times can be judged.
const patient = false
