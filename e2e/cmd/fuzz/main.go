// Command fuzz runs every fuzz target of the module in turn, each for a while.
// A failing input is kept by the Go tool under the package's testdata/fuzz and
// becomes a regression test with the next `go test`.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

func main() {
	each := flag.Duration("each", time.Minute, "how long each target is fuzzed")
	only := flag.String("only", "", "regular expression of targets, as package.Target; empty: all")
	flag.Usage = func() {
		fmt.Fprint(os.Stderr, "Fuzz every parser and state machine of the module in turn.\n\n  go run ./e2e/cmd/fuzz --each 30s --only wire\n\n")
		flag.PrintDefaults()
	}
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *each, *only); err != nil {
		fmt.Fprintln(os.Stderr, "fuzz:", err)
		os.Exit(1)
	}
}

type target struct{ pkg, name string }

var declared = regexp.MustCompile(`(?m)^func (Fuzz\w+)\(`)

// targets finds the fuzz functions in the sources, so that listing them builds nothing.
func targets(ctx context.Context) ([]target, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-f", "{{.ImportPath}} {{.Dir}} {{join .TestGoFiles \" \"}} {{join .XTestGoFiles \" \"}}", "./...").Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	var found []target
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if len(f) < 3 {
			continue
		}
		for _, file := range f[2:] {
			src, err := os.ReadFile(filepath.Join(f[1], file))
			if err != nil {
				return nil, err
			}
			for _, m := range declared.FindAllSubmatch(src, -1) {
				found = append(found, target{f[0], string(m[1])})
			}
		}
	}
	return found, nil
}

func run(ctx context.Context, each time.Duration, only string) error {
	pick, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	all, err := targets(ctx)
	if err != nil {
		return err
	}
	var failed []string
	for i, t := range all {
		id := t.pkg[strings.LastIndex(t.pkg, "/")+1:] + "." + t.name
		if !pick.MatchString(id) {
			continue
		}
		fmt.Printf("%d/%d %s\n", i+1, len(all), id)
		cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-fuzz", "^"+t.name+"$", "-fuzztime", each.String(), t.pkg)
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Run(); err != nil {
			failed = append(failed, id)
			fmt.Println(out.String())
		} else if line := lastProgress(out.String()); line != "" {
			fmt.Println("   ", line)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	if len(failed) > 0 {
		return errors.New("targets failed: " + strings.Join(failed, ", "))
	}
	return nil
}

func lastProgress(out string) (last string) {
	for line := range strings.Lines(out) {
		if strings.Contains(line, "execs:") {
			last = strings.TrimSpace(line)
		}
	}
	return last
}
