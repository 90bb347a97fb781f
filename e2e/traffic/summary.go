package traffic

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Quantile of a set that need not be sorted; zero of an empty one.
func Quantile[T cmp.Ordered](values []T, q float64) (zero T) {
	if len(values) == 0 {
		return zero
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// SLO is what a request must keep to count as good.
type SLO struct {
	FirstToken time.Duration
	Gap        time.Duration // mean between two tokens of one stream
}

// Summary of one run. The gap between tokens is that between two pieces as the
// client read them.
type Summary struct {
	Requests, Whole, Refused, Broken int
	Tokens                           int
	Took                             time.Duration
	FirstToken50, FirstToken99       time.Duration
	Gap50, Gap99                     time.Duration
	Good                             int // whole and within the SLO
	SLO                              SLO
}

// Summarize counts answers that arrived within took.
func Summarize(answers []Answer, took time.Duration, slo SLO) Summary {
	s := Summary{Requests: len(answers), Took: took, SLO: slo}
	var first, gaps []time.Duration
	for _, a := range answers {
		switch {
		case a.Whole() == nil:
			s.Whole++
		case a.Failure != nil:
			s.Refused++
			continue
		default:
			s.Broken++
			continue
		}
		s.Tokens += a.Usage.Completion
		first = append(first, a.FirstToken)
		gaps = append(gaps, a.Gaps...)
		if a.FirstToken <= slo.FirstToken && mean(a.Gaps) <= slo.Gap {
			s.Good++
		}
	}
	s.FirstToken50, s.FirstToken99 = Quantile(first, .50), Quantile(first, .99)
	s.Gap50, s.Gap99 = Quantile(gaps, .50), Quantile(gaps, .99)
	return s
}

func mean(ds []time.Duration) time.Duration {
	if len(ds) == 0 {
		return 0
	}
	var sum time.Duration
	for _, d := range ds {
		sum += d
	}
	return sum / time.Duration(len(ds))
}

func (s Summary) String() string {
	round := func(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }
	return fmt.Sprintf("%d requests in %s: %d whole, %d refused, %d broken; %d tokens\n"+
		"TTFT p50 %s p99 %s; ITL p50 %s p99 %s\n"+
		"goodput %.1f requests/s (%d of %d with TTFT <= %s and mean ITL <= %s)",
		s.Requests, s.Took.Round(time.Millisecond), s.Whole, s.Refused, s.Broken, s.Tokens,
		round(s.FirstToken50), round(s.FirstToken99), round(s.Gap50), round(s.Gap99),
		float64(s.Good)/s.Took.Seconds(), s.Good, s.Requests, s.SLO.FirstToken, s.SLO.Gap)
}
