package cli

import (
	"os"
	"runtime/debug"
)

// garbagePercent lets the heap of a process that serves grow to a bit more than
// twice what is in use before it is collected. More than that takes a gateway under load beyond 120 MiB.
const garbagePercent = 110

// spendMemory leaves what Go's own variables say as it is.
func spendMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbagePercent)
	}
}
