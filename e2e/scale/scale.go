package scale

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/surehand/surehand/e2e/fleet"
	"github.com/surehand/surehand/e2e/traffic"
)

// Config of a run.
type Config struct {
	Shards   []int // of PostgreSQL, behind one gateway
	Gateways []int // replicas, on PostgreSQL
	Clients  int   // of the closed loop
	Load     time.Duration
	Idle     time.Duration // looked at before any load
	Burst    int           // requests in one moment; 0: none
	SQLite   bool
	Out      io.Writer // progress
}

// Default takes some five minutes.
func Default() Config {
	return Config{Shards: []int{1, 4, 16, 64}, Gateways: []int{1, 2, 3}, Clients: 32, Load: 6 * time.Second, Idle: 3 * time.Second, Burst: 600, SQLite: true, Out: io.Discard}
}

// Engines that a cell's handoffs are between.
const (
	Nobody    = "no"        // an empty workflow in each one's place: what Temporal itself costs
	Native    = "native"    // fakes that hand over by themselves: no store is used
	Transferd = "transferd" // synthetic reference engines with their daemons, and Redis
)

// Stores of histories.
const (
	SQLite     = "SQLite"
	PostgreSQL = "PostgreSQL"
)

// Cell is one fleet.
type Cell struct {
	Store    string
	Shards   int // of PostgreSQL
	Gateways int
	Record   string
	Engines  string
	Burst    bool // its load is one moment's
}

func (c Cell) String() string {
	store := c.Store
	if c.Store == PostgreSQL {
		store = fmt.Sprintf("%s/%d", c.Store, c.Shards)
	}
	if c.Engines == Nobody {
		return fmt.Sprintf("%s, empty workflows, record %s", store, c.Record)
	}
	return fmt.Sprintf("%s, %s engines, %d gateway(s), record %s", store, c.Engines, c.Gateways, c.Record)
}

// replicaShards is what the replicas are measured on.
const replicaShards = 16

// cells are those of a run, each once.
func (c Config) cells() (out []Cell) {
	seen := map[Cell]bool{}
	add := func(x Cell) {
		if !seen[x] && (x.Store == SQLite || x.Shards > 0) && x.Gateways > 0 {
			seen[x], out = true, append(out, x)
		}
	}
	for _, record := range []string{"request", "handoff"} {
		for _, engines := range []string{Nobody, Native, Transferd} {
			if c.SQLite {
				add(Cell{SQLite, 0, 1, record, engines, false})
			}
		}
	}
	for _, n := range c.Shards {
		add(Cell{PostgreSQL, n, 1, "request", Native, false})
	}
	for _, n := range c.Gateways {
		add(Cell{PostgreSQL, replicaShards, n, "request", Transferd, false})
	}
	if c.Burst > 0 {
		add(Cell{SQLite, 0, 1, "request", Native, true})
		add(Cell{SQLite, 0, 1, "request", Transferd, true})
	}
	return out
}

// Result of one cell.
type Result struct {
	Cell
	Whole        int
	Refused      map[string]int // typed, by status and code
	Wrong        map[string]int // what must not be
	Took         time.Duration
	CPU          map[string]time.Duration // by kind of process, and the generator's own
	Idle         map[string]time.Duration // the same, for Config.Idle without load
	Calls        map[string]int           // of Redis, by command
	Transactions int                      // of PostgreSQL
}

// Run measures every cell.
func Run(ctx context.Context, c Config) (*Report, error) {
	p, err := fleet.Build(ctx, true)
	if err != nil {
		return nil, err
	}
	r := &Report{Config: c}
	for _, x := range c.cells() {
		if _, err := fleet.PostgresPrograms(); err != nil && x.Store == PostgreSQL {
			r.Skipped = append(r.Skipped, fmt.Sprintf("%s: %s", x, err))
			continue
		}
		out, err := c.cell(ctx, p, x)
		if ctx.Err() != nil {
			return r, ctx.Err()
		}
		if err != nil { // the others are worth their time
			r.Failed = append(r.Failed, fmt.Sprintf("%s: %s", x, err))
			fmt.Fprintf(c.Out, "%s: %s\n", x, err)
			continue
		}
		r.Results = append(r.Results, out)
		fmt.Fprintf(c.Out, "%s: %.0f handoffs/s\n", x, out.Rate())
	}
	return r, nil
}

func (c Config) cell(ctx context.Context, p fleet.Programs, x Cell) (out Result, err error) {
	dir, err := os.MkdirTemp("", "surehand-scale-")
	if err != nil {
		return out, err
	}
	f, send, end, err := start(ctx, p, dir, x)
	defer func() {
		end()
		if f != nil {
			err = errors.Join(err, f.Stop())
		}
		err = errors.Join(err, os.RemoveAll(dir))
	}()
	if err != nil {
		return out, err
	}
	m := &meter{f: f, redis: x.Engines == Transferd}
	out = Result{Cell: x, Refused: map[string]int{}, Wrong: map[string]int{}}
	if !x.Burst { // a burst finds a gateway that has just begun
		traffic.ClosedFor(ctx, c.Clients, warm, send)
		if out.Idle, err = m.idle(ctx, c.Idle); err != nil {
			return out, err
		}
	}
	before, err := m.read(ctx)
	if err != nil {
		return out, err
	}
	began := time.Now()
	var answers []traffic.Answer
	if x.Burst {
		answers = traffic.Closed(ctx, c.Burst, c.Burst, send)
	} else {
		answers = traffic.ClosedFor(ctx, c.Clients, c.Load, send)
	}
	out.Took = time.Since(began)
	out.count(answers)
	if err := m.settle(ctx); err != nil {
		return out, err
	}
	after, err := m.read(ctx)
	out.CPU, out.Calls, out.Transactions = after.less(before)
	return out, err
}

const (
	warm   = time.Second
	tokens = 4
	prompt = 254 // bytes; the engines frame it by two tokens
)

// settleFor lets what trails the last stream be counted to it: its signal, its
// last writes, and PostgreSQL's own count, which comes once a second.
const settleFor = 1500 * time.Millisecond

// count sorts the answers: whole, refused with a type, or wrong.
func (r *Result) count(answers []traffic.Answer) {
	for _, a := range answers {
		err := a.Broken
		if r.Engines != Nobody { // who answers nothing
			err = a.Whole()
			if err == nil {
				err = a.Is(tokens)
			}
		}
		switch {
		case err == nil:
			r.Whole++
		case a.Failure != nil && a.Typed() == nil && (a.Status == 429 || a.Status == 503) && a.RetryAfter > 0:
			r.Refused[fmt.Sprintf("%d %s", a.Status, a.Failure.Code)]++
		default:
			r.Wrong[clip(err.Error())]++
		}
	}
}

func clip(s string) string { return s[:min(len(s), 160)] }

// Rate is durable handoffs a second.
func (r Result) Rate() float64 { return float64(r.Whole) / r.Took.Seconds() }

// Milliseconds of CPU that a kind of process used for a handoff.
func (r Result) Milliseconds(kind string) float64 {
	return float64(r.CPU[kind]) / float64(time.Millisecond) / float64(max(1, r.Whole))
}

// generator is the row of this process.
const generator = "generator"

type meter struct {
	f     *fleet.Fleet
	redis bool
}

type reading struct {
	cpu          map[string]time.Duration
	calls        map[string]int
	transactions int
}

func (m *meter) read(ctx context.Context) (out reading, err error) {
	if out.cpu, err = m.f.CPU(); err != nil {
		return out, err
	}
	var own syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &own); err != nil {
		return out, err
	}
	out.cpu[generator] = time.Duration(own.Utime.Nano() + own.Stime.Nano())
	if m.redis {
		if out.calls, err = m.f.RedisCalls(ctx); err != nil {
			return out, err
		}
	}
	out.transactions, err = m.f.Transactions(ctx)
	return out, err
}

func (r reading) less(before reading) (cpu map[string]time.Duration, calls map[string]int, transactions int) {
	for kind := range r.cpu {
		r.cpu[kind] -= before.cpu[kind]
	}
	for name := range r.calls {
		r.calls[name] -= before.calls[name]
	}
	return r.cpu, r.calls, r.transactions - before.transactions
}

// idle is what nothing costs.
func (m *meter) idle(ctx context.Context, d time.Duration) (map[string]time.Duration, error) {
	if err := m.settle(ctx); err != nil {
		return nil, err
	}
	before, err := m.read(ctx)
	if err != nil {
		return nil, err
	}
	if err := pause(ctx, d); err != nil {
		return nil, err
	}
	after, err := m.read(ctx)
	cpu, _, _ := after.less(before)
	return cpu, err
}

func (m *meter) settle(ctx context.Context) error { return pause(ctx, settleFor) }

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

var asked atomic.Int64
