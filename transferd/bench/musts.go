package bench

import (
	"fmt"
	"io"
	"slices"
	"time"
)

// must is a claim about two rows of one run.
type must struct {
	claim   string
	tables  []string // where it is made; none: everywhere
	a, b    string   // rows
	of      func(a, b result) float64
	limit   float64 // a is at most (at least, when atLeast) limit times b
	atLeast bool
	stretch bool
}

var sizes = []string{"16KiB", "64KiB"}

// musts are what this data plane is held to. A row that was skipped proves nothing:
// its claims are open, not held.
var musts = []must{
	{"memfd at most 1.2 x the scattered copy", nil, memfdRow, copyRow, cpuRatio, 1.2, false, false},
	{"process memory at most NIXL's best setting", sizes, processRow, nixlRow, cpuRatio, 1, false, false},
	{"tcp + crc32c at most 0.6 x Mooncake's CPU", sizes, tcpRow + checked, mooncakeRow, cpuRatio, 0.6, false, false},
	{"tcp + crc32c at most 0.4 x NIXL-tcp's CPU", sizes, tcpRow + checked, nixlTCPRow, cpuRatio, 0.4, false, false},
	{"tcp at least the GB/s of iperf3's one stream", []string{"64KiB"}, tcpRow, iperfRow, speedRatio, 1, true, false},
	{"memfd at most 1.1 x the scattered copy", nil, memfdRow, copyRow, cpuRatio, 1.1, false, true},
	{"tcp at most 1.25 x iperf3's CPU", sizes, tcpRow, iperfRow, cpuRatio, 1.25, false, true},
}

// oneBlock is the stretch claim about the median of one 64 KiB block over tcp.
const oneBlock = 25 * time.Microsecond

// result is every sample of a row, one a round.
type result []sample

// cpuRatio holds still on a loud machine.
func cpuRatio(a, b result) float64 {
	return median(values(a, sample.cpuPerGB)) / median(values(b, sample.cpuPerGB))
}

// speedRatio is taken within each round, and of those the median.
func speedRatio(a, b result) float64 {
	var out []float64
	for i := range a {
		out = append(out, a[i].gbps()/b[i].gbps())
	}
	return median(out)
}

// judge prints each claim that this table is one of, and whether it holds.
func judge(out io.Writer, table string, results map[string]result) {
	for _, m := range musts {
		if m.tables != nil && !slices.Contains(m.tables, table) {
			continue
		}
		kind := "must"
		if m.stretch {
			kind = "stretch"
		}
		a, haveA := results[m.a]
		b, haveB := results[m.b]
		if !haveA || !haveB {
			fmt.Fprintf(out, "  %-8s %-48s open: a row was not measured\n", kind, m.claim)
			continue
		}
		ratio := m.of(a, b)
		fmt.Fprintf(out, "  %-8s %-48s %-14s %.2f x\n", kind, m.claim, verdict(m.atLeast && ratio >= m.limit || !m.atLeast && ratio <= m.limit), ratio)
	}
}

func verdict(holds bool) string {
	if holds {
		return "holds"
	}
	return "DOES NOT HOLD"
}
