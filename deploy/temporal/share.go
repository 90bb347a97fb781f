package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"

	"github.com/surehand/surehand/deploy/temporal/settings"
)

const (
	// defaultNice is all but an ordinary process's share (sched(7)): being a batch
	// process is what matters. With a third of it, at level 5, a machine that was
	// busy with other things kept starts waiting until they were refused.
	defaultNice = 1
	maxNice     = 19
	// niceVariable reaches a server that `surehand dev` or `serve` starts.
	niceVariable = "SUREHAND_TEMPORAL_NICE"

	// garbagePercent lets the heap grow to four times what is in use before it is
	// collected: a third of the collections for some megabytes.
	garbagePercent = 300
)

// niceLevel is the flag's, or else the environment's.
func niceLevel(flag int, given bool) (int, error) {
	source := "--nice"
	if text := os.Getenv(niceVariable); text != "" && !given {
		n, err := strconv.Atoi(text)
		if err != nil {
			return 0, fmt.Errorf("$%s %q is no number", niceVariable, text)
		}
		flag, source = n, "$"+niceVariable
	}
	if flag < 0 || flag > maxNice {
		return 0, fmt.Errorf("%s %d is not between 0 and %d", source, flag, maxNice)
	}
	return flag, nil
}

// spend says what this process takes of memory and processors. What Go's own
// variables say stays.
func spend(s settings.Settings) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbagePercent)
	}
	// SQLite has one writer, and so the server one lane: on more processors its
	// goroutines mostly wake each other's threads, for half of its CPU again.
	if s.Store == "" && os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(max(1, runtime.GOMAXPROCS(0)/2))
	}
}
