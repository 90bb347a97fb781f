// Package telemetry is how a Surehand process is watched: JSON logs, a metrics
// registry, liveness and readiness. It knows nothing of handoffs.
//
// Prompt text never reaches it: callers log ids, counts and codes.
package telemetry
