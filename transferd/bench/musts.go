package bench

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// must is a claim about two rows of one run.
type must struct {
	claim   string
	tables  []string // where it is made; none: everywhere
	a       string   // row
	b       []string // the other one: of several that which costs the least CPU
	of      func(a, b sample) float64
	limit   float64 // a is at most (at least, when atLeast) limit times b
	atLeast bool
	stretch bool
}

var sizes = []string{"16KiB", "64KiB"}

// musts are what this data plane is held to. A row that was skipped proves nothing:
// its claims are open, not held.
var musts = []must{
	{"memfd at most 1.2 x the scattered copy's CPU", nil, memfdRow, []string{copyRow}, cpuRatio, 1.2, false, false},
	{"process memory at most NIXL's best CPU", sizes, processRow, []string{nixlRow, nixlDefaultRow}, cpuRatio, 1, false, false},
	{"tcp + crc32c at most 0.6 x Mooncake's CPU", sizes, tcpRow + checked, []string{mooncakeRow}, cpuRatio, 0.6, false, false},
	{"tcp + crc32c at most 0.4 x NIXL-tcp's CPU", sizes, tcpRow + checked, []string{nixlTCPRow}, cpuRatio, 0.4, false, false},
	{"tcp at least the GB/s of iperf3's one stream", []string{"64KiB"}, tcpRow, []string{iperfRow}, speedRatio, 1, true, false},
	{"memfd at most 1.1 x the scattered copy's CPU", nil, memfdRow, []string{copyRow}, cpuRatio, 1.1, false, true},
	{"tcp at most 1.25 x iperf3's CPU", sizes, tcpRow, []string{iperfRow}, cpuRatio, 1.25, false, true},
	{"tcp at most 1.25 x unpaced iperf3's CPU", sizes, tcpRow, []string{iperfRenoRow}, cpuRatio, 1.25, false, true},
}

// oneBlock is the stretch claim about the median of one 64 KiB block over tcp.
const oneBlock = 25 * time.Microsecond

// result is every sample of a row.
type result []sample

// cpuRatio holds still on a loud machine.
func cpuRatio(a, b sample) float64   { return a.cpuPerGB() / b.cpuPerGB() }
func speedRatio(a, b sample) float64 { return a.gbps() / b.gbps() }

// judge measures the two rows of each claim of this table in turns, one straight
// after the other, so that a loud minute is loud for both, and says of the median of
// the pairs' ratios whether the claim holds. A claim about two rows that were paired
// already is made of the same pairs.
func (cfg Config) judge(ctx context.Context, table string, rows []row, results map[string]result) (lines []string, err error) {
	pairs := map[[2]string][][2]sample{}
	for _, m := range musts {
		if m.tables != nil && !slices.Contains(m.tables, table) {
			continue
		}
		kind := "must"
		if m.stretch {
			kind = "stretch"
		}
		other := cheapest(results, m.b)
		if len(results[m.a]) == 0 || other == "" {
			lines = append(lines, fmt.Sprintf("%-8s %-48s open: a row was not measured", kind, m.claim))
			continue
		}
		key := [2]string{m.a, other}
		if pairs[key] == nil {
			if pairs[key], err = cfg.pair(ctx, rows, key, results); err != nil {
				return nil, err
			}
		}
		var ratios []float64
		for _, p := range pairs[key] {
			ratios = append(ratios, m.of(p[0], p[1]))
		}
		ratio := median(ratios)
		lines = append(lines, fmt.Sprintf("%-8s %-48s %-14s %.2f x (%.2f to %.2f, %d pairs)", kind, m.claim,
			verdict(m.atLeast && ratio >= m.limit || !m.atLeast && ratio <= m.limit), ratio, quantile(ratios, 25), quantile(ratios, 75), len(ratios)))
	}
	return lines, nil
}

// cheapest is the row that costs the least CPU of those that were measured.
func cheapest(results map[string]result, names []string) (best string) {
	for _, name := range names {
		if len(results[name]) > 0 && (best == "" || median(values(results[name], sample.cpuPerGB)) < median(values(results[best], sample.cpuPerGB))) {
			best = name
		}
	}
	return best
}

// pair measures two rows in turns; who goes first changes from turn to turn.
func (cfg Config) pair(ctx context.Context, rows []row, names [2]string, results map[string]result) (pairs [][2]sample, err error) {
	began := time.Now()
	for turn := range cfg.Pairs {
		if turn >= pairsFew && time.Since(began) > pairsTime {
			break
		}
		var p [2]sample
		for i := range p {
			which := (turn + i) % 2
			at := slices.IndexFunc(rows, func(r row) bool { return r.name == names[which] })
			if p[which], err = rows[at].run(ctx); err != nil {
				return nil, fmt.Errorf("%s: %w", names[which], err)
			}
			results[names[which]] = append(results[names[which]], p[which])
		}
		pairs = append(pairs, p)
	}
	return pairs, nil
}

func verdict(holds bool) string {
	if holds {
		return "holds"
	}
	return "DOES NOT HOLD"
}
