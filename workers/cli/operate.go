package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	operatev1 "github.com/surehand/surehand/contracts/gen/surehand/operate/v1"
)

const operateLong = `What operators do to live handoffs and to engines. Every act needs a reason; it
is written to the audit, and into the handoff's history where there is one,
before it is done. With an access file it takes an operator's key.`

const operateExamples = `  surehand operate engines
  surehand operate drain d1 --reason "disk replaced"     # waits until d1 owes nothing
  surehand operate replace HANDOFF --decode d2 --reason "d1 is slow"
  surehand operate deploy 3f2c1a9 --reason "release 12"     # handoffs begin on it; older ones stay on theirs
  surehand operate versions
  surehand operate audit`

// operation is one verb of operate: what it takes and what it asks.
type operation struct {
	use, short string
	steers     bool
	do         func(ctx context.Context, o operatev1.OperatorClient, on string, v *verb, out io.Writer) error
}

// verb is what the flags of one say.
type verb struct{ reason, prefill, decode, tenant string }

var acts = []operation{
	{"cancel HANDOFF", "Cancel any tenant's handoff", false, func(ctx context.Context, o operatev1.OperatorClient, on string, v *verb, out io.Writer) error {
		a, err := o.Cancel(ctx, &operatev1.ActRequest{Handoff: on, Tenant: v.tenant, Reason: v.reason})
		return said(out, a, err)
	}},
	{"replace HANDOFF", "Give an attempt up that is not committed, for another epoch", true, func(ctx context.Context, o operatev1.OperatorClient, on string, v *verb, out io.Writer) error {
		a, err := o.Replace(ctx, v.steer(on))
		return said(out, a, err)
	}},
	{"pin HANDOFF", "Name the engines of a handoff's epochs to come", true, func(ctx context.Context, o operatev1.OperatorClient, on string, v *verb, out io.Writer) error {
		a, err := o.Pin(ctx, v.steer(on))
		return said(out, a, err)
	}},
	{"release HANDOFF", "Free what a handoff that is over still holds", false, func(ctx context.Context, o operatev1.OperatorClient, on string, v *verb, out io.Writer) error {
		a, err := o.Release(ctx, &operatev1.ActRequest{Handoff: on, Tenant: v.tenant, Reason: v.reason})
		return said(out, a, err)
	}},
	{"cordon ENGINE", "Have an engine take nothing new", false, func(ctx context.Context, o operatev1.OperatorClient, on string, v *verb, out io.Writer) error {
		_, err := o.Cordon(ctx, &operatev1.CordonRequest{Engine: on, Reason: v.reason})
		return errors.Join(err, engineTable(ctx, o, out))
	}},
	{"uncordon ENGINE", "Have an engine take work again", false, func(ctx context.Context, o operatev1.OperatorClient, on string, v *verb, out io.Writer) error {
		_, err := o.Cordon(ctx, &operatev1.CordonRequest{Engine: on, Reason: v.reason, Off: true})
		return errors.Join(err, engineTable(ctx, o, out))
	}},
	{"drain ENGINE", "Cordon an engine and wait until it owes nothing", false, drain},
	{"deploy BUILD", "Have handoffs begin on a version of the workers' deployment; those under way stay on theirs", false, func(ctx context.Context, o operatev1.OperatorClient, on string, v *verb, out io.Writer) error {
		a, err := o.Deploy(ctx, &operatev1.DeployRequest{Build: on, Reason: v.reason})
		return errors.Join(err, versionTable(out, a))
	}},
}

func (v *verb) steer(on string) *operatev1.SteerRequest {
	return &operatev1.SteerRequest{Handoff: on, Tenant: v.tenant, Reason: v.reason, Prefill: v.prefill, Decode: v.decode}
}

func newOperate() *cobra.Command {
	c := &cobra.Command{Use: "operate", Short: "Operators' acts on live handoffs and engines", Long: operateLong, Example: operateExamples, GroupID: groupClient,
		Args: cobra.NoArgs, RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
	c.AddGroup(&cobra.Group{ID: groupClient, Title: "Acts:"})
	for _, op := range acts {
		c.AddCommand(op.command())
	}
	c.AddCommand(look("engines", "List the engines, cordoned ones too", cobra.NoArgs, func(ctx context.Context, o operatev1.OperatorClient, _ string, out io.Writer) error {
		return engineTable(ctx, o, out)
	}), look("owes ENGINE", "List what an engine still holds, and for whom", cobra.ExactArgs(1), func(ctx context.Context, o operatev1.OperatorClient, on string, out io.Writer) error {
		a, err := o.Owes(ctx, &operatev1.OwesRequest{Engine: on})
		if err != nil {
			return err
		}
		return heldTable(out, a.GetHeld(), a.GetUnknown())
	}), look("versions", "List the versions of the workers' deployment, and which still have handoffs", cobra.NoArgs, func(ctx context.Context, o operatev1.OperatorClient, _ string, out io.Writer) error {
		a, err := o.Versions(ctx, &operatev1.VersionsRequest{})
		if err != nil {
			return err
		}
		return versionTable(out, a)
	}), look("audit", "List what operators did, the newest first", cobra.NoArgs, func(ctx context.Context, o operatev1.OperatorClient, _ string, out io.Writer) error {
		a, err := o.Audit(ctx, &operatev1.AuditRequest{})
		for _, e := range a.GetEntries() {
			fmt.Fprintf(out, "%s  %s  %s %s: %s\n", time.UnixMilli(e.GetAtUnixMs()).UTC().Format(time.RFC3339), e.GetBy(), e.GetAction(), e.GetOn(), e.GetReason())
		}
		return err
	}))
	return c
}

func newLeaks() *cobra.Command {
	var all bool
	c := look("leaks", "List what is held for handoffs that are over: reserved less released, by owner", cobra.NoArgs, func(ctx context.Context, o operatev1.OperatorClient, _ string, out io.Writer) error {
		a, err := o.Leaks(ctx, &operatev1.LeaksRequest{All: all})
		if err != nil {
			return err
		}
		if len(a.GetHeld())+len(a.GetUnknown()) == 0 {
			nothing := "nothing is held for nobody"
			if all {
				nothing = "nothing is held"
			}
			_, err := fmt.Fprintln(out, nothing)
			return err
		}
		return heldTable(out, a.GetHeld(), fmt.Sprint(a.GetUnknown()))
	})
	c.Flags().BoolVar(&all, "all", false, "what is held rightly too")
	c.Example = "  surehand leaks\n  surehand leaks --all"
	return c
}

func (op operation) command() *cobra.Command {
	var s server
	var v verb
	c := &cobra.Command{Use: op.use, Short: op.short, Args: cobra.ExactArgs(1)}
	s.flags(c)
	c.Flags().StringVar(&v.reason, "reason", "", "why; it stands in the audit")
	if err := c.MarkFlagRequired("reason"); err != nil {
		panic(err) // a name that is no flag
	}
	if op.steers {
		c.Flags().StringVar(&v.prefill, "prefill", "", "engine (default: placed)")
		c.Flags().StringVar(&v.decode, "decode", "", "engine (default: placed)")
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		v.tenant = s.tenant
		return s.over(c, 0, func(ctx context.Context, conn *grpc.ClientConn) error {
			return op.do(ctx, operatev1.NewOperatorClient(conn), args[0], &v, c.OutOrStdout())
		})
	}
	return c
}

// look is a command that asks and changes nothing.
func look(use, short string, args cobra.PositionalArgs, do func(context.Context, operatev1.OperatorClient, string, io.Writer) error) *cobra.Command {
	var s server
	c := &cobra.Command{Use: use, Short: short, Args: args}
	s.flags(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		on := ""
		if len(args) > 0 {
			on = args[0]
		}
		return s.over(c, callTimeout, func(ctx context.Context, conn *grpc.ClientConn) error {
			return do(ctx, operatev1.NewOperatorClient(conn), on, c.OutOrStdout())
		})
	}
	return c
}

func said(out io.Writer, a *operatev1.ActAnswer, err error) error {
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, a.GetStatus())
	for _, r := range a.GetReleased() {
		fmt.Fprintln(out, "  ", r)
	}
	return err
}

func drain(ctx context.Context, o operatev1.OperatorClient, on string, v *verb, out io.Writer) error {
	owes, err := o.Drain(ctx, &operatev1.CordonRequest{Engine: on, Reason: v.reason})
	if err != nil {
		return err
	}
	for {
		a, err := owes.Recv()
		if errors.Is(err, io.EOF) {
			_, err := fmt.Fprintf(out, "%s owes nothing and takes nothing new\n", on)
			return err
		}
		if err != nil {
			return err
		}
		if n, unknown := len(a.GetHeld()), a.GetUnknown(); n > 0 || unknown != "" {
			fmt.Fprintln(out, strings.TrimSpace(fmt.Sprintf("%s owes %d %s", on, n, unknown)))
		}
	}
}

func engineTable(ctx context.Context, o operatev1.OperatorClient, out io.Writer) error {
	a, err := o.Engines(ctx, &operatev1.EnginesRequest{})
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ENGINE\tROLE\tMODEL\tNODE\tFREE\tPROMISES\tRUNNING\tCORDONED")
	for _, e := range a.GetEngines() {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d/%d\t%d\t%d\t%s\n", e.GetEngine(), e.GetRole(), e.GetModel(), e.GetNode(), e.GetBlocksFree(), e.GetBlocks(), e.GetPromises(), e.GetRunning(), e.GetWhy())
	}
	return w.Flush()
}

func versionTable(out io.Writer, a *operatev1.VersionsAnswer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "DEPLOYMENT\tBUILD\tCURRENT\tHERE\tHANDOFFS")
	for _, v := range a.GetVersions() {
		fmt.Fprintf(w, "%s\t%s\t%t\t%t\t%s\n", a.GetDeployment(), v.GetBuild(), v.GetCurrent(), v.GetHere(), v.GetDrainage())
	}
	return w.Flush()
}

func heldTable(out io.Writer, held []*operatev1.Held, unknown string) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ENGINE\tKIND\tSTATE\tBLOCKS\tPOSTED\tHANDOFF\tEPOCH\tOWNER")
	for _, h := range held {
		owner := h.GetOwner()
		if owner == "" {
			owner = "nobody"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%s\t%d\t%s\n", h.GetEngine(), h.GetKind(), h.GetState(), h.GetBlocks(), h.GetPosted(), h.GetHandoff(), h.GetEpoch(), owner)
	}
	err := w.Flush()
	if unknown != "" && unknown != "[]" {
		_, failed := fmt.Fprintln(out, "no answer:", unknown)
		err = errors.Join(err, failed)
	}
	return err
}
