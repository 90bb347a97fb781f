// surehand-temporal is the Temporal server that `surehand dev` runs: server
// and web UI in one process, histories in SQLite files or in PostgreSQL,
// loopback only.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/surehand/surehand/deploy/temporal/embedded"
	"github.com/surehand/surehand/deploy/temporal/settings"
	"go.temporal.io/server/common/headers"
)

// startTimeout bounds the start; a start takes about a second.
const startTimeout = 60 * time.Second

// storeVariable keeps a database's password off the command line, which every
// process of the machine can read.
const storeVariable = "SUREHAND_TEMPORAL_STORE"

const long = `A whole Temporal server and its web UI in one process, on SQLite files or on
a PostgreSQL database.

It listens on loopback only, keeps every acknowledged workflow through kill -9,
and prints one JSON line when it can be used:

  {"ready":true,"frontend":"127.0.0.1:7233","ui":"http://127.0.0.1:8233/"}

Logs are JSON on stderr. It stops in order on SIGINT or SIGTERM.`

const examples = `  # the usual: histories in ./temporal-data, frontend on 7233, UI on 8233
  surehand-temporal --data ./temporal-data

  # free ports, no UI, two namespaces, gone when the caller is gone
  surehand-temporal --data /tmp/t --listen 127.0.0.1:0 --ui '' \
      --namespace default --namespace staging --die-with-parent

  # histories in PostgreSQL 12 or newer; tables are made when there are none
  surehand-temporal --store postgres://temporal@127.0.0.1/temporal --shards 64

  # one more search attribute, on data that is there already
  surehand-temporal --data ./temporal-data --search-attributes SurehandModel=Keyword,MyTeam=Keyword`

// flags are the texts of the command line, before they are checked.
type flags struct {
	settings                                     settings.Settings
	listen, ui, metrics, pprof, searchAttributes string
	parent, nice                                 int
}

func main() {
	// The UI's server writes its last words to os.Stdout; stdout carries the
	// ready line and nothing else.
	stdout := os.Stdout
	os.Stdout = os.Stderr
	slog.SetDefault(slog.New(slog.NewJSONHandler(os.Stderr, nil)))
	if err := command(stdout).Execute(); err != nil {
		slog.Error("surehand-temporal ends", "error", err.Error())
		os.Exit(1)
	}
}

func command(stdout io.Writer) *cobra.Command {
	var f flags
	c := &cobra.Command{
		Use:   "surehand-temporal (--data DIR | --store URL)",
		Short: "Temporal server and UI for surehand dev",
		Long:  long, Example: examples,
		Version:       headers.ServerVersion,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	c.SetOut(stdout)
	set := c.Flags()
	set.SortFlags = false
	set.StringVar(&f.settings.DataDir, "data", "", "directory for the histories, in SQLite files (made when missing)")
	set.StringVar(&f.settings.Store, "store", "", "URL of a PostgreSQL database for the histories in place of --data; also from $"+storeVariable+", which hides a password")
	set.IntVar(&f.settings.Shards, "shards", 0, "history shards of a database that is new; they stay as they are (default "+fmt.Sprint(settings.DefaultShards)+")")
	set.StringVar(&f.listen, "listen", settings.DefaultListen, "loopback address of the frontend (gRPC); port 0 takes a free one")
	set.StringVar(&f.settings.UICodec, "ui-codec", "", "URL of the codec server that the UI's pages ask for sealed payloads, with the browser's cookies for it")
	set.StringVar(&f.ui, "ui", settings.DefaultUI, "loopback address of the web UI; empty for none")
	set.StringArrayVar(&f.settings.Namespaces, "namespace", []string{settings.DefaultNamespace}, "namespace to create when missing (repeatable)")
	set.DurationVar(&f.settings.Retention, "retention", settings.DefaultRetention, "how long a new namespace keeps closed workflows")
	set.StringVar(&f.searchAttributes, "search-attributes", settings.DefaultSearchAttributes, "Name=Type,... to register in each namespace")
	set.StringVar(&f.metrics, "metrics", "", "loopback address for Prometheus metrics at /metrics (default none)")
	set.StringVar(&f.pprof, "pprof", "", "loopback address for Go profiles at /debug/pprof/ (default none)")
	_ = set.MarkHidden("pprof") // fails for an unknown flag only
	set.StringVar(&f.settings.LogLevel, "log-level", "warn", "debug, info, warn or error")
	set.IntVar(&f.nice, "nice", defaultNice, "run as a batch process of this nice level, 1 to 19: who moves tokens goes first; 0: like everybody; also from $"+niceVariable)
	set.IntVar(&f.parent, "die-with-parent", noParent, "stop when the parent process ends; with =`PID` also make sure that PID is the parent")
	parent := set.Lookup("die-with-parent")
	parent.NoOptDefVal = fmt.Sprint(anyParent)
	parent.DefValue = "0" // help need not show the number for "no parent"
	c.RunE = func(*cobra.Command, []string) error {
		s, err := f.parse()
		if err != nil {
			return err
		}
		if err := dieWithParent(f.parent); err != nil {
			return err
		}
		level, err := niceLevel(f.nice, set.Changed("nice"))
		if err != nil {
			return err
		}
		if err := yield(level); err != nil {
			slog.Warn("this machine does not let the server yield; it takes its turn like everybody", "error", err.Error())
		}
		pprof, err := settings.Loopback("--pprof", f.pprof)
		if err != nil {
			return err
		}
		stop, err := servePprof(pprof)
		if err != nil {
			return err
		}
		return errors.Join(serve(s, stdout), stop())
	}
	return c
}

func (f flags) parse() (s settings.Settings, err error) {
	s = f.settings
	if s.Store == "" && s.DataDir == "" {
		s.Store = os.Getenv(storeVariable)
	}
	var failed [4]error
	s.Frontend, failed[0] = settings.Loopback("--listen", f.listen)
	s.UI, failed[1] = settings.Loopback("--ui", f.ui)
	s.Metrics, failed[2] = settings.Loopback("--metrics", f.metrics)
	s.SearchAttributes, failed[3] = settings.ParseSearchAttributes(f.searchAttributes)
	if err := errors.Join(failed[:]...); err != nil {
		return s, err
	}
	return s, s.Check()
}

// ready is the one line on stdout.
type ready struct {
	Ready    bool   `json:"ready"`
	Frontend string `json:"frontend"`
	UI       string `json:"ui"`
}

func serve(s settings.Settings, stdout io.Writer) error {
	spend(s)
	stop, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer cancel()
	starting, started := context.WithTimeout(stop, startTimeout)
	defer started()
	server, err := embedded.Start(starting, s)
	if err != nil {
		return err
	}
	err = json.NewEncoder(stdout).Encode(ready{Ready: true, Frontend: server.Frontend(), UI: server.UI()})
	if err != nil {
		return errors.Join(fmt.Errorf("say ready on stdout: %w", err), server.Stop())
	}
	<-stop.Done()
	cancel() // a second signal ends the process at once
	return server.Stop()
}
