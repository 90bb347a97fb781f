package peers

import (
	"io"
	"time"

	"github.com/surehand/surehand/e2e/traffic"
)

// Config of a run.
type Config struct {
	Routers []string // names of Routers; those that are not installed are skipped and told
	Rounds  int      // of each side, in turns
	Round   time.Duration
	Rates   []float64      // Poisson arrivals a second, of the realistic load
	Clients []int          // closed loops
	Trace   []traffic.Item // lengths and arrivals
	TraceOf string         // where they are from
	Loads   bool
	Streams int // held open for the memory of one; 0: not measured
	Faults  bool
	Outage  int    // requests after one of two engines died
	Install bool   // routers that are not there yet
	Args    string // further flags of ours
	Profile string // a directory for CPU profiles of ours under the realistic load; empty: none
	Out     io.Writer
}

// Default takes some twelve minutes.
func Default() Config {
	return Config{Routers: []string{VLLMRouter, SGLangRouter, Dynamo}, Rounds: 5, Round: 2 * time.Second, Rates: []float64{10, 20, 40, 60},
		Clients: []int{1, 4, 16, 64}, Loads: true, Streams: 1000, Faults: true, Outage: 75, Install: true, Out: io.Discard}
}

// Quick takes about three minutes: each goal once, beside one router, with less certainty.
func (c Config) Quick() Config {
	c.Routers, c.Rounds, c.Round, c.Rates, c.Clients = []string{VLLMRouter}, 2, 1500*time.Millisecond, []float64{40}, nil
	c.Trace, c.Streams, c.Outage = nil, 0, 25
	return c
}

// Load is one kind of work.
type Load struct {
	Name    string
	Clients int             // of a closed loop; 0: open
	Count   int             // requests of a closed loop; 0: as many as a round takes
	At      []time.Duration // arrivals of an open one
	Prompt  []int           // tokens of request i, cyclic
	Tokens  []int           // of its answer
	pace
	Rounds int
}

type pace struct{ prefill1k, step time.Duration }

// The realistic profile: 2,000 tokens in 80 ms, 32 tokens 10 ms apart.
const (
	realPrompt   = 2000
	realTokens   = 32
	shortPrompt  = 256
	shortTokens  = 16
	relayClients = 64
	relayFew     = 8
	relayMany    = 208
)

var realPace = pace{40 * time.Millisecond, 10 * time.Millisecond}
