// chaos strikes a whole Surehand of real processes with faults, in every phase
// of a handoff, and reports which required outcomes held.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/surehand/surehand/e2e/chaos"
	"github.com/surehand/surehand/e2e/fleet"
)

var errBroken = errors.New("not every cell holds")

const examples = `  # a spread of sixty cells, some ten minutes
  chaos --cells 60 --html chaos.html

  # every cell: an hour or two
  chaos --html chaos.html --json chaos.json

  # the same in several sittings of half an hour
  chaos --json chaos.json --resume --minutes 30

  # one cell, or some of them
  chaos --only 'pause/td1/transfer'
  chaos --only 'kill/*/commit'

  # what a client alone can do, against a deployment that runs
  chaos --target http://127.0.0.1:8080 --model surehand-reference`

type options struct {
	campaign       chaos.Campaign
	html, json     string
	target         chaos.Target
	minutes        int
	list, unfenced bool
	resume         bool
}

func main() {
	var o options
	cmd := &cobra.Command{Use: "chaos", Short: "Strike real processes in every phase of a handoff and check what became of it", Example: examples,
		Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true}
	f := cmd.Flags()
	f.Uint64Var(&o.campaign.Seed, "seed", 1, "of the order in which cells run")
	f.IntVar(&o.campaign.Cells, "cells", 0, "so many, spread over all faults; 0: all")
	f.IntVar(&o.minutes, "minutes", 0, "no cell begins later; 0: no limit")
	f.StringVar(&o.campaign.Only, "only", "", "pattern of fault/victim/phase, such as 'kill/*/commit'")
	f.StringVar(&o.html, "html", "", "file for the report with the matrix as a picture")
	f.StringVar(&o.json, "json", "", "file for the results")
	f.BoolVar(&o.resume, "resume", false, "leave out the cells that held when the file of --json was written, and add to it")
	f.BoolVar(&o.list, "list", false, "list the faults and whom they can strike")
	f.BoolVar(&o.unfenced, "shared-network", false, "stay in the host's network namespace: no faults of the wire")
	f.StringVar(&o.target.URL, "target", "", "gateway of a deployment that runs: only what a client can do, nothing is broken")
	f.StringVar(&o.target.Model, "model", "", "with --target: the model to ask")
	f.StringVar(&o.target.Key, "api-key", os.Getenv("SUREHAND_API_KEY"), "with --target: the caller's API key; also SUREHAND_API_KEY")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
		defer stop()
		return o.run(ctx, cmd.OutOrStdout())
	}
	if err := cmd.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

func (o *options) run(ctx context.Context, out io.Writer) error {
	c := &o.campaign
	c.Out, c.Within = os.Stderr, time.Duration(o.minutes)*time.Minute
	switch {
	case o.list:
		return list(out)
	case o.target.URL != "":
		c.Command = fmt.Sprintf("go run ./e2e/cmd/chaos --target %s --model %s --only ", o.target.URL, o.target.Model)
		return errors.Join(c.RunAgainst(ctx, o.target), o.report(out))
	}
	c.Command = "go run ./e2e/cmd/chaos --only "
	if o.resume {
		if err := o.earlier(); err != nil {
			return err
		}
	}
	p, err := fleet.Build(ctx, true)
	if err != nil {
		return err
	}
	if !o.unfenced && !chaos.Inside() {
		status, err := chaos.Enter()
		if err == nil {
			os.Exit(status)
		}
		fmt.Fprintf(os.Stderr, "no faults of the wire: %s\n", err)
	}
	return errors.Join(c.Run(ctx, p), o.report(out))
}

// earlier takes the results that are there already, if any are.
func (o *options) earlier() error {
	f, err := os.Open(o.json)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	return errors.Join(o.campaign.ReadJSON(f), f.Close())
}

// report writes what was asked for; a broken cell is an error.
func (o *options) report(out io.Writer) error {
	c := &o.campaign
	if len(c.Results) == 0 {
		return nil
	}
	err := errors.Join(c.WriteText(out), write(o.html, c.WriteHTML), write(o.json, c.WriteJSON))
	if _, broken, _ := c.Counts(); broken > 0 {
		err = errors.Join(err, errBroken)
	}
	return errors.Join(err, c.Weak())
}

func write(name string, to func(io.Writer) error) (err error) {
	if name == "" {
		return nil
	}
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(to(f), f.Close())
}

func list(out io.Writer) error {
	for _, f := range chaos.Faults() {
		if _, err := fmt.Fprintf(out, "%-15s %s\n%15s at %v\n", f.Name, f.About, "", f.Victims); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(out, "%d cells, in the phases %v\n", len(chaos.All()), chaos.Phases)
	return err
}
