package vllmbench

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/surehand/surehand/e2e/fleet"
	"github.com/surehand/surehand/workers/vllmenv"
)

// Cost is CPU time by who took it.
type Cost struct{ Engines, Daemons, Fronts, Rest time.Duration }

func (c *Cost) add(after, before Cost) {
	c.Engines += after.Engines - before.Engines
	c.Daemons += after.Daemons - before.Daemons
	c.Fronts += after.Fronts - before.Fronts
	c.Rest += after.Rest - before.Rest
}

// cpu is what a way's processes have used since they began.
func (b *bench) cpu(w way) (c Cost, err error) {
	for _, e := range w.engines {
		used, _, err := group(e)
		if err != nil {
			return c, err
		}
		c.Engines += used
	}
	if w.fleet == nil {
		return c, nil
	}
	kinds, err := w.fleet.CPU()
	if err != nil {
		return c, err
	}
	for kind, used := range kinds {
		switch kind {
		case "transferd":
			c.Daemons = used
		case "engine":
			c.Fronts = used
		default:
			c.Rest += used
		}
	}
	return c, nil
}

// group is the CPU time and the proportional memory of an engine's processes.
func group(e *vllmenv.Engine) (used time.Duration, bytes int64, err error) {
	used, pids, err := fleet.Group(e.PID)
	for _, pid := range pids {
		n, err := proportional(pid)
		if err != nil {
			return 0, 0, err
		}
		bytes += n
	}
	return used, bytes, err
}

// proportional counts a page that n processes share as an nth of it.
func proportional(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "Pss:"); ok {
			n, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return n << 10, err
		}
	}
	return 0, fmt.Errorf("/proc smaps_rollup of %d has no Pss", pid)
}

// who is something whose CPU time and memory are looked at.
type who struct {
	name string
	use  func() (time.Duration, int64, error)
}

func server(name string, e *vllmenv.Engine) who {
	return who{name, func() (time.Duration, int64, error) { return group(e) }}
}

func process(name string, p *fleet.Process) who {
	return who{name, func() (time.Duration, int64, error) {
		used, err := p.CPU()
		if err != nil {
			return 0, 0, err
		}
		bytes, err := proportional(p.PID())
		return used, bytes, err
	}}
}

// beside are the processes of ours at a seat.
func (b *bench) beside(seat string) []who {
	return []who{process(seat+"'s front", b.conn.Process(seat)), process(seat+"'s transferd", b.conn.Process("t"+seat))}
}

// look adds what each takes while a state lasts.
func (b *bench) look(ctx context.Context, r *Report, state string, of ...who) error {
	before := make([]time.Duration, len(of))
	for i, o := range of {
		var err error
		if before[i], _, err = o.use(); err != nil {
			return err
		}
	}
	began := time.Now()
	select {
	case <-time.After(looked):
	case <-ctx.Done():
		return ctx.Err()
	}
	for i, o := range of {
		after, bytes, err := o.use()
		if err != nil {
			return err
		}
		r.States = append(r.States, State{state, o.name, float64(after-before[i]) / float64(time.Since(began)), bytes})
	}
	return nil
}

// states looks at the engines at rest, while they hold something, and while they move it.
func (b *bench) states(ctx context.Context, r *Report, ways []way) error {
	p, d := b.seats["p1"], b.seats["d1"]
	with := append(append([]who{server(theirP, p)}, b.beside("p1")...), append([]who{server(theirD, d)}, b.beside("d1")...)...)
	nixl := []who{server("P with NIXL", b.np), server("D with NIXL", b.nd)}
	for _, step := range []func() error{
		func() error { return b.begin(ctx, ways[0]) },
		func() error { return b.look(ctx, r, "at rest", server("engine without a connector", b.plain)) },
		func() error { return b.begin(ctx, ways[bare]) },
		func() error { return b.look(ctx, r, "at rest", nixl...) },
		func() error { return b.moving(ctx, r, ways[bare], nixl) },
		func() error { return b.heldByNIXL(ctx, r, nixl[0]) },
		func() error { return b.begin(ctx, ways[ours]) },
		func() error { return b.look(ctx, r, "at rest", with...) },
		func() error { return b.moving(ctx, r, ways[ours], with) },
		func() error { return b.holding(ctx, r, ways[ours], false, with[3:]) },
		func() error { return b.holding(ctx, r, ways[ours], true, with[:3]) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// moving has one request follow the other.
func (b *bench) moving(ctx context.Context, r *Report, w way, of []who) error {
	asked, leave := context.WithCancel(ctx)
	defer leave()
	var done int
	ended := make(chan error, 1)
	prompts := b.Prompts[len(b.Prompts)-1]
	go func() {
		for {
			switch _, _, err := w.ask(asked, b.prompt(prompts), b.Tokens); {
			case asked.Err() != nil:
				ended <- nil
				return
			case err != nil:
				ended <- err
				return
			}
			done++
		}
	}()
	first := len(r.States)
	err := b.look(ctx, r, "", of...)
	leave()
	if bad := <-ended; err == nil {
		err = bad
	}
	for i := range r.States[first:] {
		r.States[first+i].Name = fmt.Sprintf("moving, %d handoffs in %s", done, looked)
	}
	return err
}

// heldByNIXL has P keep what nobody fetches.
func (b *bench) heldByNIXL(ctx context.Context, r *Report, p who) error {
	if err := b.prefilled(ctx); err != nil {
		return err
	}
	return b.look(ctx, r, holds, p)
}

// holding has D reserved for a prompt that P does not compute, or P keep one of which
// its transferd takes no word.
func (b *bench) holding(ctx context.Context, r *Report, w way, atP bool, of []who) (err error) {
	daemon := b.conn.Process("tp1")
	if err := b.seats["p1"].Pause(); err != nil {
		return err
	}
	asked, leave := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _, _ = w.ask(asked, b.prompt(b.Prompts[0]), b.Tokens) // it leaves
	}()
	defer func() {
		leave()
		for _, f := range []func() error{b.seats["p1"].Resume, daemon.Resume} {
			if again := f(); err == nil {
				err = again
			}
		}
		<-ended
	}()
	if err := b.held(ctx, "d1"); err != nil {
		return err
	}
	if !atP {
		return b.look(ctx, r, holds, of...)
	}
	if err := daemon.Pause(); err != nil {
		return err
	}
	if err := b.seats["p1"].Resume(); err != nil {
		return err
	}
	if err := b.held(ctx, "p1"); err != nil {
		return err
	}
	if err := b.look(ctx, r, holds, of...); err != nil {
		return err
	}
	return b.held(ctx, "p1") // it did all the while
}

// held waits until a seat holds something.
func (b *bench) held(ctx context.Context, seat string) error {
	e, err := b.conn.Engine(seat)
	if err != nil {
		return err
	}
	for end := time.Now().Add(answerIn); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if got, err := e.Describe(ctx); err == nil && got.BlocksFree < got.Blocks {
			return nil
		}
	}
	return fmt.Errorf("%s holds nothing within %s", seat, answerIn)
}
