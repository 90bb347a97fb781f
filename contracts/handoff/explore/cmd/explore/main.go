// Command explore searches the protocol's small world further than the tests do.
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/surehand/surehand/contracts/handoff/explore"
)

func main() {
	name := flag.String("scenario", "", "run the scenarios whose name contains this; empty: all")
	maxStates := flag.Int("max-states", 2_000_000, "stop a search at about this many states")
	mutants := flag.Bool("mutants", false, "search the mutants instead: each must be caught")
	closure := flag.Bool("close", false, "walk depth first, with leaks and fair runs judged, in a word a state; two requests as well")
	single := flag.Bool("single", false, "with -close: one request only")
	pairs := flag.Bool("pairs", false, "with -close: two requests only")
	together := flag.Bool("together", false, "with -close: walk over two requests in the same real tables, not over their product")
	trace := flag.Bool("trace", false, "print traces")
	flag.Parse()
	failed := false
	if *closure {
		failed = runClosures(*name, *maxStates, *single, *pairs, *together)
	} else if *mutants {
		failed = runMutants(*name, *maxStates, *trace)
	} else {
		failed = runScenarios(*name, *maxStates)
	}
	if failed {
		os.Exit(1)
	}
}

func runScenarios(name string, maxStates int) (failed bool) {
	for _, sc := range explore.Scenarios {
		if !strings.Contains(sc.Name, name) {
			continue
		}
		start := time.Now()
		r := explore.Run(sc, maxStates)
		fmt.Printf("%s  %s\n", r, time.Since(start).Round(time.Millisecond))
		if r.Failed() {
			failed = true
			printTrace(r.Trace)
		}
	}
	return failed
}

// heap bounds what the collector lets the walk grow to.
const heap = 5 << 30

func runClosures(name string, maxStates int, single, pairs, together bool) (failed bool) {
	debug.SetMemoryLimit(heap)
	one := func(sc explore.Scenario, name string, walk func(explore.Scenario, int) explore.Closure) {
		if !strings.Contains(sc.Name, name) {
			return
		}
		start := time.Now()
		c := walk(sc, maxStates)
		fmt.Printf("%s  %s\n", c, time.Since(start).Round(time.Second))
		if c.Failed() {
			failed = true
			printTrace(c.Trace)
		}
	}
	if !pairs {
		for _, sc := range explore.Scenarios {
			one(sc, name, explore.Close)
		}
	}
	if single {
		return failed
	}
	two := explore.ClosePair
	if together {
		two = explore.CloseTogether
	}
	for _, sc := range explore.Pairs {
		one(sc, strings.TrimPrefix(name, "two requests: "), two)
	}
	return failed
}

func printTrace(steps []string) {
	for i, s := range steps {
		fmt.Printf("  %2d. %s\n", i+1, s)
	}
}

func runMutants(name string, maxStates int, trace bool) (failed bool) {
	for _, m := range explore.Mutants {
		if !strings.Contains(m.Name, name) {
			continue
		}
		start := time.Now()
		r := explore.Run(m.Scenario, maxStates)
		fmt.Printf("%s  %d steps  %s\n", r, len(r.Trace), time.Since(start).Round(time.Millisecond))
		if trace {
			printTrace(r.Trace)
		}
		control, bound := m.Scenario, r.States
		if control.Omit = m.Control; r.Leaking > 0 {
			bound = maxStates // that nothing leaks only a complete search shows
		}
		c := explore.Run(control, bound)
		fmt.Printf("  with the rule: %s\n", c)
		if !r.Failed() || c.Failed() {
			failed = true
			printTrace(c.Trace)
		}
	}
	return failed
}
