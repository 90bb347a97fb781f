package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/surehand/surehand/workers/telemetry"
)

const rootLong = `Surehand hands a request from prefill to decode and never drops it.

Every request is a durable workflow (reserve on D, prefill on P, transfer,
commit); transferd, a daemon beside each engine, moves the bytes.`

const rootExamples = `  # everything on this machine: engines, store, Temporal with its UI, gateway
  surehand dev

  # ask, and look at what happened
  surehand submit "What do you think of Mr. Knightley?"
  surehand list
  surehand trace HANDOFF

  # a gateway of a fleet
  surehand serve --temporal temporal:7233 --redis rediss://redis:6379 --config surehand.yaml`

// Main runs one command and gives the exit status.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return run(newRoot(newEngine(nil)), args, stdin, stdout, stderr)
}

// MainWith is Main of a program whose engine runs on work of its own.
func MainWith(w Work, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return run(newRoot(newEngine(&w)), args, stdin, stdout, stderr)
}

func run(root *cobra.Command, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	if err := root.ExecuteContext(context.Background()); err != nil {
		fmt.Fprintln(stderr, "surehand:", explain(err))
		return 1
	}
	return 0
}

func newRoot(engine *cobra.Command) *cobra.Command {
	root := &cobra.Command{
		Use: "surehand", Short: "Hand a request from prefill to decode and never drop it",
		Long: rootLong, Example: rootExamples, SilenceUsage: true, SilenceErrors: true, Version: telemetry.Version(),
		PersistentPreRunE: func(c *cobra.Command, _ []string) error { return apply(c) },
	}
	root.PersistentFlags().String(flagConfig, "", "YAML file of settings, by flag name; sections by command name go first")
	root.PersistentFlags().String("log-level", "info", "debug, info, warn or error")
	root.AddGroup(&cobra.Group{ID: groupProcess, Title: "Processes:"}, &cobra.Group{ID: groupClient, Title: "Clients of a gateway:"})
	root.AddCommand(newDev(), newServe(), newWorker(), engine, newVLLM(), newStore(),
		newSubmit(), newAttach(), newGet(), newList(), newCancel(), newTrace(), newKey(), newOperate(), newLeaks(), newVersion())
	return root
}

const (
	groupProcess = "process"
	groupClient  = "client"
)

func newVersion() *cobra.Command {
	return &cobra.Command{Use: "version", Short: "Print the version", Args: cobra.NoArgs, RunE: func(c *cobra.Command, _ []string) error {
		_, err := fmt.Fprintln(c.OutOrStdout(), "surehand", telemetry.Version())
		return err
	}}
}

// logger writes to the command's stderr; stdout carries ready lines.
func logger(c *cobra.Command, process string) (*slog.Logger, error) {
	level, err := c.Flags().GetString("log-level")
	if err != nil {
		return nil, err
	}
	return telemetry.Logger(c.ErrOrStderr(), process, level)
}

// untilStopped ends with SIGINT or SIGTERM; a second one ends the process.
func untilStopped(c *cobra.Command) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// explain puts a person's next step first.
func explain(err error) string {
	if errors.Is(err, context.Canceled) {
		return "stopped"
	}
	return err.Error()
}
