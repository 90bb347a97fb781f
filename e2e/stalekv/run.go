package stalekv

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"slices"
	"strings"

	"github.com/surehand/surehand/e2e/fleet"
	"github.com/surehand/surehand/e2e/pair"
	"github.com/surehand/surehand/workers/vllmenv"
)

// Options of the demo.
type Options struct {
	// NoFence takes from Surehand what it fences by: it is told a lease of an hour
	// and P's expiry counters are hidden from it. Then the demo must fail.
	NoFence bool
	// Progress is where the installation and the start are told.
	Progress io.Writer
}

// Errors of a demo that did not show what it should.
var (
	ErrDelivered    = errors.New("Surehand delivered tokens of another prompt's KV")
	ErrNotProvoked  = errors.New("stock vLLM was not brought to answer wrongly: nothing is shown")
	ErrNotRefused   = errors.New("the request did not end in the right tokens or a typed refusal")
	ErrNotExplained = errors.New("the history does not say why")
)

const sentence = "It is a truth universally acknowledged, that a single man in possession of a good fortune. "

// question is what the client asks. Its prompt is three whole blocks of P and a bit.
var question = pair.Ask{Prompt: strings.Repeat(sentence, 18), Tokens: 12}

// Run provokes the failure on one pair without and with Surehand, and then on
// engines with Surehand's own connector. It tells on out what came of it. nil: the
// stock path failed as described and Surehand did not.
func Run(ctx context.Context, dir string, out io.Writer, o Options) (err error) {
	d := &demo{out: out}
	defer func() { err = errors.Join(err, d.rig.Close()) }()
	if err := d.open(ctx, dir, o); err != nil {
		return err
	}
	want, err := question.Send(ctx, d.rig.Plain.URL)
	if err != nil || !want.Ended() {
		return fmt.Errorf("one engine alone: %s, %w", want, err)
	}
	d.say("one engine alone:       %s", want)
	if err := d.stock(ctx, want); err != nil {
		return err
	}
	if err := d.surehand(ctx); err != nil || o.NoFence {
		return err
	}
	return d.connector(ctx)
}

type demo struct {
	out io.Writer
	rig *pair.Rig
}

func (d *demo) say(format string, args ...any) { fmt.Fprintf(d.out, format+"\n", args...) }

func (d *demo) open(ctx context.Context, dir string, o Options) (err error) {
	serve := []string{"--engine-lease", fmt.Sprintf("%ds", Lease)}
	if o.NoFence {
		serve = []string{"--engine-lease", "1h"}
	}
	d.rig, err = pair.Open(ctx, dir, o.Progress, pair.Options{P: vllmenv.Options{CacheBytes: Blocks * vllmenv.BlockBytes}, Lease: Lease, Serve: serve})
	if err == nil && o.NoFence {
		d.rig.InP.Blind(regexp.MustCompile(`^(` + regexp.QuoteMeta(pair.Expired) + `|` + regexp.QuoteMeta(pair.TooLate) + `)`))
	}
	return err
}

// stock is the failure.
func (d *demo) stock(ctx context.Context, want pair.Answer) error {
	before, err := expired(ctx, d.rig.P.URL)
	if err != nil {
		return err
	}
	got, err := question.Bare(ctx, d.rig.P.URL, d.rig.D.URL, func(ctx context.Context) error { return provoke(ctx, d.rig.P.URL, before) })
	if err != nil {
		return err
	}
	d.say("stock vLLM + NIXL:      %s", got)
	if !got.Ended() || slices.Equal(got.Tokens, want.Tokens) {
		return ErrNotProvoked
	}
	again, err := question.Bare(ctx, d.rig.P.URL, d.rig.D.URL, nil)
	if err != nil {
		return err
	}
	d.say("  asked again, no hold: %s", again)
	if again.Ended() && !slices.Equal(again.Tokens, want.Tokens) {
		d.say("                        D kept what it fetched in its prefix cache, and serves it to whoever asks the same")
	}
	c, err := pair.Look(ctx, d.rig.P.URL)
	if err != nil {
		return err
	}
	d.say("                        P counted %.0f lapsed leases and %.0f fetches after the lapse; its clients were told nothing",
		c.Sum(pair.Expired, "", ""), c.Sum(pair.TooLate, "", ""))
	return nil
}

// surehand is the same hold in front of the same D.
func (d *demo) surehand(ctx context.Context) error {
	before, err := expired(ctx, d.rig.P.URL)
	if err != nil {
		return err
	}
	provoked := make(chan error, 1)
	d.rig.InD.HoldNext(func(ctx context.Context) { provoked <- provoke(ctx, d.rig.P.URL, before) })
	ask := question
	ask.Prompt = "Again: " + ask.Prompt // another prompt from its first block on: D has the first one's in its prefix cache
	want, err := ask.Send(ctx, d.rig.Plain.URL)
	if err != nil {
		return err
	}
	d.say("one engine alone:       %s", want)
	got, err := ask.Send(ctx, d.rig.URL())
	if err != nil {
		return err
	}
	select {
	case err := <-provoked:
		if err != nil {
			return fmt.Errorf("the hold in front of D: %w", err)
		}
	default:
		return fmt.Errorf("D was never asked, so nothing was held: %s", got)
	}
	d.say("Surehand, same engines: %s", got)
	if got.Handoff == "" {
		return ErrNotRefused
	}
	explained := d.drawn(ctx, d.rig.Fleet, got.Handoff)
	if err := verdict(got, want); err != nil {
		return err
	}
	return explained
}

func verdict(got, want pair.Answer) error {
	switch {
	case got.Ended() && slices.Equal(got.Tokens, want.Tokens):
		return nil
	case len(got.Tokens) > 0 && !slices.Equal(got.Tokens, want.Tokens[:min(len(got.Tokens), len(want.Tokens))]):
		return ErrDelivered
	case got.Code != "" && got.Broken == nil:
		return nil
	}
	return ErrNotRefused
}

// drawn prints the handoff as `surehand trace` does; it must tell of a step that
// was refused, and why.
func (d *demo) drawn(ctx context.Context, f *fleet.Fleet, id string) error {
	text, err := exec.CommandContext(ctx, d.rig.Programs.Surehand, "trace", "--server", f.GRPC[fleet.Gateway], id).CombinedOutput()
	d.say("\n$ surehand trace %s\n%s", id, text)
	if err != nil {
		return err
	}
	if !strings.Contains(string(text), "✗") {
		return ErrNotExplained
	}
	return nil
}

func address(url string) string { return strings.TrimPrefix(url, "http://") }
