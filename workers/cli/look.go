package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"

	submitv1 "github.com/surehand/surehand/contracts/gen/surehand/submit/v1"
)

// callTimeout is for commands that ask one thing.
const callTimeout = 10 * time.Second

func newGet() *cobra.Command {
	var s server
	c := &cobra.Command{
		Use: "get HANDOFF", Short: "Show what the history says of one handoff, as JSON", Args: cobra.ExactArgs(1),
		Example: "  surehand get h-5c0ffee0\n  surehand get h-5c0ffee0 | jq .status",
		RunE: func(c *cobra.Command, args []string) error {
			return s.call(c, callTimeout, func(ctx context.Context, client submitv1.SubmitClient) error {
				h, err := client.Get(ctx, &submitv1.GetRequest{Handoff: args[0], Tenant: s.tenant})
				if err != nil {
					return err
				}
				text, err := protojson.MarshalOptions{Multiline: true, UseProtoNames: true}.Marshal(h)
				if err != nil {
					return err
				}
				_, err = c.OutOrStdout().Write(append(text, '\n'))
				return err
			})
		},
	}
	s.flags(c)
	return c
}

func newCancel() *cobra.Command {
	var s server
	c := &cobra.Command{
		Use: "cancel HANDOFF", Short: "Cancel a handoff: P, D and the transfer, directly", Args: cobra.ExactArgs(1),
		Example: "  surehand cancel h-5c0ffee0",
		RunE: func(c *cobra.Command, args []string) error {
			return s.call(c, callTimeout, func(ctx context.Context, client submitv1.SubmitClient) error {
				a, err := client.Cancel(ctx, &submitv1.CancelRequest{Handoff: args[0], Tenant: s.tenant})
				if err != nil {
					return err
				}
				when := "the cancel came after its commit"
				if a.GetBeforeCommit() {
					when = "the cancel came before its commit"
				}
				_, err = fmt.Fprintf(c.OutOrStdout(), "%s %s; %s\n", args[0], a.GetStatus(), when)
				return err
			})
		},
	}
	s.flags(c)
	return c
}

func newList() *cobra.Command {
	var s server
	var status string
	var limit uint32
	c := &cobra.Command{
		Use: "list", Short: "List handoffs, the newest first", Args: cobra.NoArgs,
		Example: "  surehand list\n  surehand list --status failed --limit 10",
		RunE: func(c *cobra.Command, _ []string) error {
			return s.call(c, callTimeout, func(ctx context.Context, client submitv1.SubmitClient) error {
				l, err := client.List(ctx, &submitv1.ListRequest{Tenant: s.tenant, Status: status, Limit: limit})
				if err != nil {
					return err
				}
				return table(c.OutOrStdout(), l.GetHandoffs())
			})
		},
	}
	s.flags(c)
	c.Flags().StringVar(&status, "status", "", "running, completed, failed or cancelled (default: all)")
	c.Flags().Uint32Var(&limit, "limit", 0, "how many at most (default 50)")
	return c
}

// table is one line a handoff.
func table(out io.Writer, handoffs []*submitv1.Handoff) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, err := fmt.Fprintln(w, "HANDOFF\tSTATUS\tPHASE\tEPOCH\tP\tD\tTIME\tWHY")
	for _, h := range handoffs {
		took := "…"
		if h.GetEndedUnixMs() > 0 {
			took = (time.Duration(h.GetEndedUnixMs()-h.GetStartedUnixMs()) * time.Millisecond).String()
		}
		_, failed := fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\n", h.GetHandoff(), h.GetStatus(), h.GetPhase(), h.GetEpoch(),
			h.GetPrefill(), h.GetDecode(), took, h.GetCode())
		err = errors.Join(err, failed)
	}
	return errors.Join(err, w.Flush())
}

// size is a count of bytes for people.
func size(n uint64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	value, at := float64(n)/unit, 0
	for value >= unit && at < 3 {
		value /= unit
		at++
	}
	return fmt.Sprintf("%.1f %ciB", value, "KMGT"[at])
}
