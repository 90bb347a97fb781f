package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	submitv1 "github.com/surehand/surehand/contracts/gen/surehand/submit/v1"
)

const (
	barWidth    = 48
	barWidthMin = 10
	barWidthMax = 400
)

func newTrace() *cobra.Command {
	var s server
	var width int
	c := &cobra.Command{
		Use: "trace HANDOFF", Short: "Draw one handoff's steps as a waterfall, with epochs and bytes", Args: cobra.ExactArgs(1),
		Example: "  surehand trace h-5c0ffee0\n  surehand trace --width 100 h-5c0ffee0",
		RunE: func(c *cobra.Command, args []string) error {
			if width < barWidthMin || width > barWidthMax {
				return fmt.Errorf("--width %d: give %d to %d characters", width, barWidthMin, barWidthMax)
			}
			return s.call(c, callTimeout, func(ctx context.Context, client submitv1.SubmitClient) error {
				h, err := client.Get(ctx, &submitv1.GetRequest{Handoff: args[0], Tenant: s.tenant})
				if err != nil {
					return err
				}
				return waterfall(c.OutOrStdout(), h, width)
			})
		},
	}
	s.flags(c)
	c.Flags().IntVar(&width, "width", barWidth, "characters of the time line")
	return c
}

// waterfall draws the spans of h on one time line.
func waterfall(out io.Writer, h *submitv1.Handoff, width int) error {
	w := &lines{out: out}
	w.printf("handoff %s  tenant %s  model %s\n", h.GetHandoff(), h.GetTenant(), h.GetModel())
	outcome := h.GetStatus()
	if h.GetCode() != "" {
		outcome += ": " + h.GetCode()
		if h.GetDetail() != "" {
			outcome += " (" + h.GetDetail() + ")"
		}
	}
	w.printf("%s  phase %s  epoch %d  %s → %s  %s moved\n", outcome, h.GetPhase(), h.GetEpoch(), named(h.GetPrefill()), named(h.GetDecode()), size(h.GetBytes()))
	if u := h.GetUsage(); u != nil {
		w.printf("prompt %d tokens: %d direct, %d cached, %d recomputed; %d generated\n",
			u.GetPromptTokens(), u.GetDirectTokens(), u.GetCachedTokens(), u.GetRecomputedTokens(), u.GetCompletionTokens())
	}
	w.printf("workflow %s  run %s\n", h.GetWorkflowId(), h.GetRunId())
	if len(h.GetSpans()) == 0 {
		w.printf("\nno step has ended yet\n")
		return w.err
	}
	spans := slices.Clone(h.GetSpans())
	slices.SortStableFunc(spans, func(a, b *submitv1.PhaseSpan) int {
		if a.GetEpoch() != b.GetEpoch() {
			return int(a.GetEpoch()) - int(b.GetEpoch())
		}
		return int(a.GetStartMicros() - b.GetStartMicros())
	})
	w.draw(spans, width)
	return w.err
}

// lines remembers the first error of its writer.
type lines struct {
	out io.Writer
	err error
}

func (w *lines) printf(format string, args ...any) {
	_, err := fmt.Fprintf(w.out, format, args...)
	w.err = errors.Join(w.err, err)
}

func (w *lines) draw(spans []*submitv1.PhaseSpan, width int) {
	var end int64 = 1
	step, engine := len("step"), len("engine")
	for _, s := range spans {
		end = max(end, s.GetEndMicros(), s.GetStartMicros())
		step = max(step, utf8.RuneCountInString(s.GetStep()))
		engine = max(engine, utf8.RuneCountInString(s.GetEngine()))
	}
	var epoch uint32
	for _, s := range spans {
		if s.GetEpoch() != epoch {
			epoch = s.GetEpoch()
			w.printf("\nepoch %d\n", epoch)
		}
		tail := ""
		if s.GetBytes() > 0 {
			tail = "  " + size(s.GetBytes())
		}
		if s.GetCode() != "" {
			tail += "  ✗ " + s.GetCode()
		}
		w.printf("  %-*s  %-*s  │%s│ %10s +%s%s\n", step, s.GetStep(), engine, s.GetEngine(), bar(s, end, width),
			millis(s.GetStartMicros()), millis(s.GetEndMicros()-s.GetStartMicros()), tail)
	}
}

// bar is at least one character wide, so that no step is invisible.
func bar(s *submitv1.PhaseSpan, end int64, width int) string {
	at := func(micros int64) int { return int(min(max(micros, 0), end) * int64(width) / end) }
	from := min(at(s.GetStartMicros()), width-1)
	to := max(at(s.GetEndMicros()), from+1)
	mark := "█"
	if s.GetCode() != "" {
		mark = "░"
	}
	return strings.Repeat(" ", from) + strings.Repeat(mark, to-from) + strings.Repeat(" ", width-to)
}

func millis(micros int64) string {
	return fmt.Sprintf("%.1f ms", float64(micros)/float64(time.Millisecond/time.Microsecond))
}

func named(engine string) string {
	if engine == "" {
		return "?"
	}
	return engine
}
