package peers

import (
	"fmt"
	"time"
)

// Goal is one row of what was to be reached.
type Goal struct {
	What          string
	Unit          string
	Ours          float64
	Best          string // the best router beside ours, in this run
	Must, Stretch float64
	NoStretch     bool
	Missing       string // why there is no figure
	decimals      bool
}

// Holds says whether the figure is within a bound.
func (g Goal) Holds(bound float64) bool { return g.Missing == "" && g.Ours <= bound }

// Verdict in words.
func (g Goal) Verdict() string {
	switch {
	case g.Missing != "":
		return g.Missing
	case !g.NoStretch && g.Holds(g.Stretch):
		return "stretch"
	case g.Holds(g.Must):
		return "must"
	}
	return "**missed**"
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func ttft50(r Round) time.Duration { return r.TTFT50 }
func ttft99(r Round) time.Duration { return r.TTFT99 }

// figure is one measured number of a side; false: there is none.
type figure func(side string) (float64, bool)

// Goals with their verdicts.
func (r *Report) Goals() (out []Goal) {
	row := func(what, unit string, f figure, must, stretch float64) {
		g := Goal{What: what, Unit: unit, Must: must, Stretch: stretch, decimals: true}
		var ok bool
		if g.Ours, ok = f(Ours); !ok {
			g.Missing = "not measured"
		}
		g.Best = r.best(f)
		out = append(out, g)
	}
	row("added TTFT p50, realistic, Poisson 40/s", "ms", r.addedFigure(poissonLoad(40), ttft50), 3, 1.2)
	row("added TTFT p99, realistic, Poisson 40/s", "ms", r.addedFigure(poissonLoad(40), ttft99), 15, 4)
	row("added TTFT p50, realistic, closed loop c=16", "ms", r.addedFigure(realLoad(16), ttft50), 4, 2.2)
	row("added TTFT p99, realistic, closed loop c=16", "ms", r.addedFigure(realLoad(16), ttft99), 20, 12)
	row("router's CPU a request, realistic c=64", "× the fakes'", r.perRequest, 1.8, 1.2)
	row("router's CPU a relayed token, 64 streams 20 ms apart", "× D's fake", r.perToken, 1.6, 1.1)
	row("router's memory, idle", "MiB", r.idleMemory, 70, 40)
	row("router's memory, loaded", "MiB", r.loadedMemory, 120, 60)
	row("Temporal's CPU a request, realistic c=64", "ms", r.helpersCPU, 20, 8)
	for _, f := range r.Faults {
		value, ok := f.Values[Ours]
		g := Goal{What: f.Name, Ours: float64(value), NoStretch: true, Best: others(f)}
		if f.Name == faultKey {
			g.Must = 1
		}
		if !ok {
			g.Missing = "not measured"
		}
		out = append(out, g)
	}
	return out
}

func (r *Report) addedFigure(load string, f func(Round) time.Duration) figure {
	return func(side string) (float64, bool) {
		return millis(added(r.Rounds, side, load, f)), len(of(r.Rounds, side, load)) > 0
	}
}

// perRequest is the router's CPU over P's and D's fakes'.
func (r *Report) perRequest(side string) (float64, bool) {
	rounds := of(r.Rounds, side, realLoad(64))
	return median(rounds, func(x Round) float64 { return ratio(x.Router, x.Fakes) }), len(rounds) > 0
}

// perToken is the slope over the answer's length, of the router and of D's fake.
func (r *Report) perToken(side string) (float64, bool) {
	few, many := of(r.Rounds, side, relayLoad(relayFew)), of(r.Rounds, side, relayLoad(relayMany))
	slope := func(f func(Round) time.Duration) time.Duration { return median(many, f) - median(few, f) }
	return ratio(slope(func(x Round) time.Duration { return x.Router }), slope(func(x Round) time.Duration { return x.FakeD })), len(few) > 0 && len(many) > 0
}

// tokenMicros is the router's CPU for one relayed token.
func (r *Report) tokenMicros(side string) float64 {
	few, many := of(r.Rounds, side, relayLoad(relayFew)), of(r.Rounds, side, relayLoad(relayMany))
	cpu := func(x Round) time.Duration { return x.Router }
	return float64((median(many, cpu) - median(few, cpu)).Nanoseconds()) / 1000 / (relayMany - relayFew)
}

func (r *Report) idleMemory(side string) (float64, bool) {
	b, ok := r.Idle[side]
	return float64(b) / (1 << 20), ok
}

// loadedMemory is the most after any round of the loads.
func (r *Report) loadedMemory(side string) (float64, bool) {
	var most int64
	for _, x := range r.Rounds {
		if x.Side == side {
			most = max(most, x.RSS)
		}
	}
	return float64(most) / (1 << 20), most > 0
}

func (r *Report) helpersCPU(side string) (float64, bool) {
	rounds := of(r.Rounds, side, realLoad(64))
	return millis(median(rounds, func(x Round) time.Duration { return x.Helpers })), side == Ours && len(rounds) > 0
}

func ratio(a, b time.Duration) float64 {
	if b <= 0 {
		return 0
	}
	return float64(a) / float64(b)
}

// best of the other routers.
func (r *Report) best(f figure) string {
	name, least := "", 0.0
	for _, s := range r.Sides {
		if !isRouter(s) || s == Ours {
			continue
		}
		if v, ok := f(s); ok && (name == "" || v < least) {
			name, least = s, v
		}
	}
	if name == "" {
		return "–"
	}
	return fmt.Sprintf("%.2f (%s)", least, name)
}

func others(f Fault) (out string) {
	for _, r := range Routers {
		if v, ok := f.Values[r.Name]; ok {
			if out != "" {
				out += ", "
			}
			out += fmt.Sprintf("%d (%s)", v, r.Name)
		}
	}
	return out
}

// Missed is how many musts do not hold.
func (r *Report) Missed() (n int) {
	for _, g := range r.Goals() {
		if g.Missing == "" && !g.Holds(g.Must) {
			n++
		}
	}
	return n
}
