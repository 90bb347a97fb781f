package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path"
	"time"

	"github.com/surehand/surehand/e2e/fleet"
)

// Campaign is a choice of cells and what became of them.
type Campaign struct {
	Seed    uint64
	Cells   int           // so many, spread over all faults; 0: all
	Within  time.Duration // no cell begins later; 0: no limit
	Only    string        // pattern of fault/victim/phase, as path.Match; empty: any
	Command string        // that repeats one cell, to which its name is added
	Out     io.Writer     // progress

	Began   time.Time
	Took    time.Duration
	Results []Result
	seen    Tally
}

// choose gives the cells to run: those of every fault in turn, in an order that
// the seed decides, so that the first few are a spread of all.
func (c *Campaign) choose() ([]Cell, error) {
	r := rand.New(rand.NewPCG(c.Seed, 0))
	byFault := map[string][]Cell{}
	for _, cell := range All() {
		ok := c.Only == ""
		if !ok {
			var err error
			if ok, err = path.Match(c.Only, cell.String()); err != nil {
				return nil, fmt.Errorf("pattern %q: %w", c.Only, err)
			}
		}
		if ok {
			byFault[cell.Fault] = append(byFault[cell.Fault], cell)
		}
	}
	for _, f := range Faults() {
		cells := byFault[f.Name]
		r.Shuffle(len(cells), func(i, j int) { cells[i], cells[j] = cells[j], cells[i] })
	}
	var out []Cell
	for more := true; more; {
		more = false
		for _, f := range Faults() {
			if cells := byFault[f.Name]; len(cells) > 0 {
				out, byFault[f.Name], more = append(out, cells[0]), cells[1:], true
			}
		}
	}
	if c.Cells > 0 && len(out) > c.Cells {
		out = out[:c.Cells]
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no cell is called %q; cells are called fault/victim/phase", c.Only)
	}
	return out, nil
}

// Run runs the cells on one stage; a new one after a cell that did not hold, or
// whose fault outlasts it.
func (c *Campaign) Run(ctx context.Context, p fleet.Programs) (err error) {
	cells, err := c.choose()
	if err != nil {
		return err
	}
	earlier := map[Cell]bool{}
	for _, r := range c.Results {
		earlier[r.Cell] = true
	}
	if c.seen == nil {
		c.seen = Tally{}
	}
	before := c.Took
	c.Began = time.Now()
	defer func() { c.Took = before + time.Since(c.Began) }()
	var s *Stage
	defer func() {
		if s != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	var wall *Wall
	if Inside() {
		if wall, err = raiseWall(); err != nil {
			return err
		}
	}
	for i, cell := range cells {
		if earlier[cell] {
			continue
		}
		if c.Within > 0 && time.Since(c.Began) > c.Within || ctx.Err() != nil {
			fmt.Fprintf(c.Out, "stopped after %d of %d cells\n", i, len(cells))
			return context.Cause(ctx)
		}
		if s == nil {
			if s, err = Open(ctx, p, Options()); err != nil {
				return err
			}
			s.Wall = wall
		}
		m := s.Mark()
		r := s.Run(ctx, cell)
		if ctx.Err() != nil {
			fmt.Fprintf(c.Out, "stopped in %s\n", cell)
			return context.Cause(ctx)
		}
		c.seen.add(s.Since(m))
		c.Results = append(c.Results, r)
		fmt.Fprintf(c.Out, "%3d of %d  %s\n", i+1, len(cells), r.line())
		if len(r.Broken) > 0 {
			fmt.Fprintln(c.Out, s.Logs())
		}
		if f, err := find(cell.Fault); len(r.Broken) > 0 || err == nil && f.Shuns {
			used := s
			s = nil
			if err := used.Close(); err != nil {
				return err
			}
		}
	}
	return nil
}

func raiseWall() (*Wall, error) {
	if err := raiseLoopback(); err != nil {
		return nil, err
	}
	return NewWall()
}

// line tells a result in one.
func (r Result) line() string {
	name := fmt.Sprintf("%-32s", r.Cell)
	switch {
	case r.Skipped != "":
		return name + " skipped: " + r.Skipped
	case r.Holds():
		return fmt.Sprintf("%s holds in %4.1f s  %s · again: %s", name, r.Seconds, r.Verdict, r.Again)
	}
	return fmt.Sprintf("%s DOES NOT HOLD  %s · again: %s\n      %s", name, r.Verdict, r.Again, r.Broken)
}

// Counts of the results.
func (c *Campaign) Counts() (hold, broken, skipped int) {
	for _, r := range c.Results {
		switch {
		case r.Skipped != "":
			skipped++
		case r.Holds():
			hold++
		default:
			broken++
		}
	}
	return hold, broken, skipped
}
