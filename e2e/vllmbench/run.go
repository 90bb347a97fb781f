package vllmbench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/surehand/surehand/e2e/fleet"
	"github.com/surehand/surehand/e2e/pair"
	"github.com/surehand/surehand/e2e/traffic"
	"github.com/surehand/surehand/workers/vllmenv"
)

// Config of a run.
type Config struct {
	Rounds   int   // of each way, in turns
	Requests int   // of a way in a round, one after the other
	Prompts  []int // lengths, in sentences of some 25 tokens
	Tokens   int   // of an answer
	Out      io.Writer
}

// Default is a run of some five minutes.
func Default() Config {
	return Config{Rounds: 4, Requests: 8, Prompts: []int{3, 12, 36}, Tokens: 8, Out: os.Stderr}
}

const (
	sentence = "It is a truth universally acknowledged, that a single man in possession of a good fortune, must be in want of a wife. "
	longest  = 2048 // tokens
	cache    = 128 * vllmenv.BlockBytes
	answerIn = time.Minute
	lease    = 30 * time.Second // as NIXL's
	looked   = 5 * time.Second  // at a state
	again    = 100 * time.Millisecond
)

// bench is P and D twice, of the same model, and an engine that hands nothing
// over. Who does not have its turn stands still: an idle worker with NIXL burns
// half a core, and would be measured with whatever else runs.
type bench struct {
	Config
	dir          string
	built        fleet.Programs
	host         *vllmenv.Host
	plain        *vllmenv.Engine
	np, nd       *vllmenv.Engine            // they transfer by NIXL
	seats        map[string]*vllmenv.Engine // by our connector: p1, d1
	native, conn *fleet.Fleet
	clients      []*traffic.Client
	asked        int
}

// way is one path that a request takes.
type way struct {
	name    string
	engines []*vllmenv.Engine
	fleet   *fleet.Fleet // nil: nothing of ours
	ask     func(ctx context.Context, prompt string, tokens int) (first time.Duration, text string, err error)
}

// Run measures. An error says why the report is not whole.
func Run(ctx context.Context, c Config) (r *Report, err error) {
	dir, err := os.MkdirTemp("", "vllmbench-")
	if err != nil {
		return nil, err
	}
	b := &bench{Config: c, dir: dir, seats: map[string]*vllmenv.Engine{}}
	defer func() {
		if err = errors.Join(err, b.close()); err == nil {
			err = os.RemoveAll(dir)
		} else {
			err = fmt.Errorf("logs are in %s: %w", dir, err)
		}
	}()
	if err := b.open(ctx); err != nil {
		return nil, err
	}
	return b.measure(ctx)
}

func (b *bench) open(ctx context.Context) (err error) {
	if b.built, err = fleet.Build(ctx, true); err != nil {
		return err
	}
	home, err := os.UserCacheDir()
	if err != nil {
		return err
	}
	env, err := vllmenv.Install(ctx, vllmenv.DefaultDir(home), b.Out)
	if err != nil {
		return err
	}
	if b.host, err = env.Load(ctx, b.dir); err != nil {
		return err
	}
	o := func(name string) vllmenv.Options {
		return vllmenv.Options{Name: name, CacheBytes: cache, Context: longest}
	}
	var all errgroup.Group
	all.Go(func() (err error) {
		b.plain, err = b.host.Start(ctx, o("plain"))
		return err
	})
	for role, to := range map[string]**vllmenv.Engine{"kv_producer": &b.np, "kv_consumer": &b.nd} {
		all.Go(func() error {
			n, err := o(role).NIXL(role, 0)
			if err == nil {
				*to, err = b.host.Start(ctx, n)
			}
			return err
		})
	}
	b.conn, err = fleet.Start(ctx, b.built, filepath.Join(b.dir, "c"), fleet.Options{Prefill: 1, Decode: 1, Gateways: 1, Lease: lease, NoTraces: true, Serves: vllmenv.Served,
		Engine: func(ctx context.Context, s fleet.Seat) ([]string, error) {
			front := filepath.Join(b.dir, s.ID+"-front.sock")
			e, err := b.host.Start(ctx, o(s.ID).Connector(s.Role == "prefill", s.Daemon, front, nil))
			if err != nil {
				return nil, err
			}
			b.seats[s.ID] = e
			return []string{"vllm", "--url", e.URL, "--connector-socket", front}, nil
		}})
	if err := errors.Join(err, all.Wait()); err != nil {
		return err
	}
	b.native, err = fleet.StartNative(ctx, b.built, filepath.Join(b.dir, "n"), fleet.Native{Prefill: []string{b.np.URL}, Decode: []string{b.nd.URL}})
	return err
}

func (b *bench) close() error {
	var errs []error
	for _, f := range []*fleet.Fleet{b.conn, b.native} {
		if f != nil {
			errs = append(errs, f.Stop())
		}
	}
	if b.host != nil {
		errs = append(errs, b.host.Close())
	}
	return errors.Join(errs...)
}

// Places in ways.
const (
	bare = 1 // others are compared with it
	ours = 3
)

// ways are compared with each other.
func (b *bench) ways() []way {
	return []way{
		{"one engine", []*vllmenv.Engine{b.plain}, nil, b.to(b.plain.URL)},
		{"NIXL, bare", []*vllmenv.Engine{b.np, b.nd}, nil, func(ctx context.Context, prompt string, tokens int) (first time.Duration, text string, err error) {
			began := time.Now()
			a, err := pair.Ask{Prompt: prompt, Tokens: tokens, More: map[string]any{"ignore_eos": false}, OnToken: func(got int) {
				if got == 1 {
					first = time.Since(began)
				}
			}}.Bare(ctx, b.np.URL, b.nd.URL, nil)
			if err == nil && !a.Ended() {
				err = errors.New(a.String())
			}
			return first, a.Text, err
		}},
		{"NIXL, Surehand", []*vllmenv.Engine{b.np, b.nd}, b.native, b.to("http://" + b.native.HTTP[fleet.Gateway])},
		{"our connector, Surehand", []*vllmenv.Engine{b.seats["p1"], b.seats["d1"]}, b.conn, b.to("http://" + b.conn.HTTP["g1"])},
	}
}

// prefilled has P with NIXL compute a prompt that nobody fetches.
func (b *bench) prefilled(ctx context.Context) error {
	a := pair.Ask{Prompt: b.prompt(b.Prompts[0]), Tokens: 1}
	_, err := a.Bare(ctx, b.np.URL, b.nd.URL, func(context.Context) error { return errNotFetched })
	if errors.Is(err, errNotFetched) {
		return nil
	}
	return errors.Join(err, errors.New("it was fetched"))
}

var errNotFetched = errors.New("not fetched")

// to asks a server that answers as OpenAI does.
func (b *bench) to(url string) func(context.Context, string, int) (time.Duration, string, error) {
	c, bad := traffic.NewClientOf(url)
	if bad == nil {
		b.clients = append(b.clients, c)
	}
	return func(ctx context.Context, prompt string, tokens int) (time.Duration, string, error) {
		if bad != nil {
			return 0, "", bad
		}
		a := c.Send(ctx, traffic.Ask{Model: vllmenv.Served, Prompt: prompt, MaxTokens: tokens})
		return a.FirstToken, a.Text, a.Whole()
	}
}

// prompt begins like no other: nobody finds a prefix.
func (b *bench) prompt(sentences int) string {
	b.asked++
	return fmt.Sprintf("%d of them: ", b.asked) + strings.Repeat(sentence, sentences)
}

func (b *bench) measure(ctx context.Context) (*Report, error) {
	ways := b.ways()
	r := &Report{Config: b.Config}
	for _, w := range ways {
		r.Ways = append(r.Ways, Way{Name: w.name, First: map[int][]time.Duration{}})
	}
	if err := b.stand(ways[0]); err != nil {
		return nil, err
	}
	for round := range b.Rounds + 1 { // the first is to warm up
		for i, w := range ways {
			if err := b.turn(ctx, w, &r.Ways[i], ways[0], round > 0); err != nil {
				return nil, fmt.Errorf("%s: %w", w.name, err)
			}
			fmt.Fprintf(b.Out, "round %d: %s\n", round, w.name)
		}
	}
	return r, b.states(ctx, r, ways)
}

// turn lets only the engines of one way run.
func (b *bench) turn(ctx context.Context, w way, into *Way, right way, counts bool) error {
	for _, n := range b.Prompts {
		prompts := make([]string, b.Requests)
		texts := make([]string, b.Requests)
		for i := range prompts {
			prompts[i] = b.prompt(n)
		}
		if err := b.begin(ctx, w); err != nil {
			return err
		}
		before, err := b.cpu(w)
		if err != nil {
			return err
		}
		for i, p := range prompts {
			ctx, cancel := context.WithTimeout(ctx, answerIn)
			first, text, err := w.ask(ctx, p, b.Tokens)
			cancel()
			if err != nil {
				return err
			}
			if texts[i] = text; counts {
				into.First[n] = append(into.First[n], first)
			}
		}
		after, err := b.cpu(w)
		if err != nil {
			return err
		}
		if counts {
			into.Requests += b.Requests
			into.CPU.add(after, before)
		}
		if w.fleet == nil && len(w.engines) == 1 {
			continue
		}
		if err := b.stand(right); err != nil {
			return err
		}
		for i, p := range prompts {
			if _, want, err := right.ask(ctx, p, b.Tokens); err != nil || want != texts[i] {
				return fmt.Errorf("answered %q, one engine alone %q, %w", texts[i], want, err)
			}
		}
	}
	return nil
}

// begin lets only w's engines run, and asks until there is an answer: who looks at
// engines finds those that stood still well again after a while.
func (b *bench) begin(ctx context.Context, w way) error {
	if err := b.stand(w); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, answerIn)
	defer cancel()
	for {
		_, _, err := w.ask(ctx, b.prompt(1), b.Tokens)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(again):
		}
	}
}

// stand has every engine stop where it is but those of w. A server that goes on
// closes the connections that were idle as it stood: they are closed before.
func (b *bench) stand(w way) error {
	for _, c := range b.clients {
		c.Close()
	}
	http.DefaultClient.CloseIdleConnections() // of pair
	var errs []error
	for _, e := range []*vllmenv.Engine{b.plain, b.np, b.nd, b.seats["p1"], b.seats["d1"]} {
		runs := false
		for _, its := range w.engines {
			runs = runs || its == e
		}
		if runs {
			errs = append(errs, e.Resume())
		} else {
			errs = append(errs, e.Pause())
		}
	}
	return errors.Join(errs...)
}
