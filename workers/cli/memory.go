package cli

import (
	"os"
	"runtime/debug"
)

// garbagePercent lets the heap of a process that serves grow to three times
// what is in use before it is collected: half the collections for some tens of
// megabytes.
const garbagePercent = 200

// spendMemory leaves what Go's own variables say as it is.
func spendMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbagePercent)
	}
}
