package vllm

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/surehand/surehand/e2e/pair"
	"github.com/surehand/surehand/workers/vllmenv"
)

const within = 5 * time.Minute // a bound for a busy machine

// rig is shared by all tests: an engine's start costs more than a test.
var rig *pair.Rig

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if flag.Parse(); !asked || testing.Short() {
		fmt.Println("skipped: go test -tags vllm ./e2e/vllm")
		return 0
	}
	dir, err := os.MkdirTemp("", "vllm-")
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer os.RemoveAll(dir)
	began := time.Now()
	rig, err = pair.Open(context.Background(), dir, os.Stderr, pair.Options{P: vllmenv.Options{Context: context4k}, D: vllmenv.Options{Context: context4k}, Lease: lease, Serve: flags})
	defer func() {
		if err := rig.Close(); err != nil {
			fmt.Println("close:", err)
		}
	}()
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Printf("P, D and a plain engine serve after %.0f s; the import took %.0f s of CPU time\n", time.Since(began).Seconds(), rig.Host.CPU.Seconds())
	return m.Run()
}

const lease = 6 // seconds, of the pair: a tenth of a default, so that what only the timer frees is seen to be freed

// context4k is the context of P and D, in tokens.
const context4k = 4096

// flags of the gateway.
var flags = []string{"--engine-lease", fmt.Sprintf("%ds", lease)}
