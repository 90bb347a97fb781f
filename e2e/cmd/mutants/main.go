// Command mutants changes one place of the code that everything rests on and
// runs the tests beside it: a change that no test notices is a line that nobody
// proves.
//
//	go run ./e2e/cmd/mutants [-only fence] [-n 120 -seed 1] [-shard 1/4]
//	go run ./e2e/cmd/mutants -museum [-only R-04]
//
// All the mutants are compiled at once and one is chosen at run time, so each
// costs no more than the tests that come by it, up to the first that fails.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"
)

// need is the share of mutants that must be noticed.
const need = 0.95

type options struct {
	only  string
	most  int
	seed  uint64
	shard string
	list  bool
	keep  string

	without string

	museum bool
}

func main() {
	var o options
	flag.StringVar(&o.only, "only", "", "mutants whose file contains this; of the museum, rows")
	flag.IntVar(&o.most, "n", 0, "so many, drawn at random; 0: all")
	flag.Uint64Var(&o.seed, "seed", 1, "of the draw")
	flag.StringVar(&o.shard, "shard", "1/1", "i/n: the i-th of n parts")
	flag.BoolVar(&o.list, "list", false, "say what would be changed")
	flag.StringVar(&o.keep, "keep", "", "file that remembers what became of each mutant; those noticed are not tried again")
	flag.StringVar(&o.without, "without", "", "leave out suites whose package contains one of these, apart by commas: with -keep a first, quick look, whose survivors are tried by all suites afterwards")
	flag.BoolVar(&o.museum, "museum", false, "plant the bugs of e2e/MUSEUM.md and of transferd/README.md's museum instead, each against its own test")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	dir, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if o.museum {
		return runMuseum(ctx, dir, o.only)
	}
	all, err := find(o.only)
	if err != nil {
		return err
	}
	all, bad, err := compilable(ctx, dir, all)
	if err != nil {
		return err
	}
	some, err := draw(all, o)
	if err != nil {
		return err
	}
	fmt.Printf("%d mutants, %d more do not compile; %d are tried\n", len(all), len(bad), len(some))
	if o.list {
		for _, m := range some {
			fmt.Println(m)
		}
		return nil
	}
	known, err := recall(o.keep)
	if err != nil {
		return err
	}
	if o.without != "" {
		for _, m := range all {
			m.tests = slices.DeleteFunc(slices.Clone(m.tests), func(s suite) bool {
				return slices.ContainsFunc(strings.Split(o.without, ","), func(part string) bool { return strings.Contains(s.pkg, part) })
			})
		}
	}
	suites, err := prepare(ctx, dir, all)
	if err != nil {
		return err
	}
	var t tally
	for i, m := range some {
		if w := known[m.key]; w == noticed || w == late {
			t.add(m, w)
			continue
		}
		began := time.Now()
		word, by, err := judge(ctx, m, suites)
		if err != nil {
			return err
		}
		fmt.Printf("%3d/%d %-15s %5.1fs %s  [%s]\n", i+1, len(some), word, time.Since(began).Seconds(), m, by)
		t.add(m, word)
		if err := note(o.keep, m, word); err != nil {
			return err
		}
	}
	return t.report()
}

// recall reads what -keep remembers: a line a mutant, the latest counts.
func recall(name string) (map[string]string, error) {
	known := map[string]string{}
	text, err := os.ReadFile(name)
	if name == "" || errors.Is(err, os.ErrNotExist) {
		return known, nil
	}
	for l := range strings.Lines(string(text)) {
		if word, key, ok := strings.Cut(strings.TrimSuffix(l, "\n"), "\t"); ok {
			known[key] = word
		}
	}
	return known, err
}

func note(name string, m *mutant, word string) error {
	if name == "" {
		return nil
	}
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "%s\t%s\n", word, m.key)
	return errors.Join(err, f.Close())
}

// draw takes the part asked for, in an order that the seed gives.
func draw(all []*mutant, o options) ([]*mutant, error) {
	some := append([]*mutant(nil), all...)
	if o.most > 0 {
		rand.New(rand.NewPCG(o.seed, 0)).Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
		some = some[:min(o.most, len(some))]
	}
	var i, n int
	if _, err := fmt.Sscanf(o.shard, "%d/%d", &i, &n); err != nil || i < 1 || i > n {
		return nil, fmt.Errorf("a shard is i/n with 1 ≤ i ≤ n, not %q", o.shard)
	}
	var part []*mutant
	for k := i - 1; k < len(some); k += n {
		part = append(part, some[k])
	}
	return part, nil
}

func prepare(ctx context.Context, dir string, all []*mutant) (map[suite]*binary, error) {
	suites, err := build(ctx, dir, all)
	if err != nil {
		return nil, err
	}
	for s, b := range suites {
		began := time.Now()
		if err = b.measure(ctx, dir); err != nil {
			return nil, err
		}
		passed := map[int]bool{}
		for _, t := range b.tests {
			maps.Copy(passed, t.passed)
		}
		fmt.Printf("%d tests of %s come by %d mutants, %.1fs\n", len(b.tests), s.pkg, len(passed), time.Since(began).Seconds())
	}
	return suites, nil
}

// tally counts how it went.
type tally struct {
	tried, explained, late int
	survived               []*mutant
}

func (t *tally) add(m *mutant, word string) {
	t.tried++
	switch word {
	case late:
		t.late++
	case survives, unpassed, unsteady:
		if why := excuses[m.key]; why != "" {
			t.explained++
			fmt.Printf("        explained: %s\n", why)
			return
		}
		t.survived = append(t.survived, m)
	}
}

func (t *tally) report() error {
	judged := t.tried - t.explained
	caught := judged - len(t.survived)
	share := float64(caught) / float64(max(judged, 1))
	fmt.Printf("%d mutants: %d noticed (%.1f %%, %d of them by running out of time), %d explained, %d survived\n", t.tried, caught, 100*share, t.late, t.explained, len(t.survived))
	for _, m := range t.survived {
		fmt.Println("survived:", m)
	}
	if share < need {
		return fmt.Errorf("%.1f %% of the mutants were noticed, want %.0f %%", 100*share, 100*need)
	}
	return nil
}
