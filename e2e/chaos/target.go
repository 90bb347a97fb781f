package chaos

import (
	"context"
	"fmt"
	"net/http"
	"path"
	"sync"
	"time"

	"github.com/surehand/surehand/e2e/traffic"
)

// Target is a deployment that runs. Only what any client may do is done to it.
type Target struct{ URL, Model, Key string }

// habit is something that clients do to a server, well-meaning or not.
type habit struct {
	name  string
	phase Phase
	do    func(t *target, ctx context.Context) (verdict string, err error)
}

var habits = []habit{
	{"leaves", Admit, func(t *target, ctx context.Context) (string, error) { return t.leave(ctx, 0) }},
	{"leaves", Decode, func(t *target, ctx context.Context) (string, error) { return t.leave(ctx, 3) }},
	{"twins", Admit, (*target).twins},
	{"repeats", Idle, (*target).repeats},
	{"other-body", Idle, (*target).otherBody},
	{"hurried", Admit, (*target).hurried},
	{"dawdles", Decode, (*target).dawdles},
	{"too-much", Admit, (*target).tooMuch},
}

type target struct {
	Target
	client *traffic.Client
}

// targetTokens of each answer.
const targetTokens = 16

func (t *target) ask(key string) traffic.Ask {
	a := traffic.Ask{Model: t.Model, Prompt: traffic.Words(LongPrompt), MaxTokens: targetTokens, Seed: 7, APIKey: t.Key, Deadline: RequestWithin}
	if key != "" {
		a.Key = fmt.Sprintf("chaos-%s-%d", key, time.Now().UnixNano())
	}
	return a
}

// RunAgainst runs the habits against a deployment.
func (c *Campaign) RunAgainst(ctx context.Context, to Target) error {
	client, err := traffic.NewClientOf(to.URL)
	if err != nil {
		return err
	}
	defer client.Close()
	t := &target{to, client}
	c.Began = time.Now()
	defer func() { c.Took = time.Since(c.Began) }()
	if err := t.fine(ctx); err != nil {
		return fmt.Errorf("%s does not serve: %w", to.URL, err)
	}
	for _, h := range habits {
		r := Result{Cell: Cell{h.name, "client", h.phase}, Required: "whole or typed, one sampling, and the next request whole"}
		if ok, err := path.Match(c.Only, r.Cell.String()); c.Only != "" && (err != nil || !ok) {
			continue
		}
		began := time.Now()
		verdict, err := h.do(t, ctx)
		if r.Verdict = verdict; err != nil {
			r.Broken = append(r.Broken, err.Error())
		}
		if err := t.fine(ctx); err != nil {
			r.Broken = append(r.Broken, "afterwards: "+err.Error())
		}
		r.Seconds = time.Since(began).Seconds()
		c.Results = append(c.Results, r)
		fmt.Fprintln(c.Out, r.line())
	}
	return ctx.Err()
}

func (t *target) fine(ctx context.Context) error {
	a, _ := t.client.Insist(ctx, t.ask(""), RequestWithin, 200*time.Millisecond)
	return a.Whole()
}

// leave goes after so many pieces, 0: at once; the same key then ends as it must.
func (t *target) leave(ctx context.Context, pieces int) (string, error) {
	client, leave := context.WithCancel(ctx)
	defer leave()
	a := t.ask("leaves")
	again := a
	a.OnPiece = func(n int) {
		if n == pieces {
			leave()
		}
	}
	if pieces == 0 {
		time.AfterFunc(20*time.Millisecond, leave)
	}
	first := t.client.Send(client, a)
	second, _ := t.client.Insist(ctx, again, RequestWithin, 200*time.Millisecond)
	return Verdict(first) + "; again: " + Verdict(second), second.Typed()
}

// twins ask the same thing with one key at once.
func (t *target) twins(ctx context.Context) (string, error) {
	const many = 8
	a := t.ask("twins")
	answers := make([]traffic.Answer, many)
	var all sync.WaitGroup
	for i := range answers {
		all.Go(func() { answers[i] = t.client.Send(ctx, a) })
	}
	all.Wait()
	for _, got := range answers {
		if err := got.Whole(); err != nil {
			return Verdict(got), err
		}
		if got.Text != answers[0].Text || got.Handoff != answers[0].Handoff {
			return Verdict(got), fmt.Errorf("one key, two answers: %q of %s and %q of %s", got.Text, got.Handoff, answers[0].Text, answers[0].Handoff)
		}
	}
	return fmt.Sprintf("%d equal streams of one handoff", many), nil
}

func (t *target) repeats(ctx context.Context) (string, error) {
	a := t.ask("repeats")
	first := t.client.Send(ctx, a)
	if err := first.Whole(); err != nil {
		return Verdict(first), err
	}
	second := t.client.Send(ctx, a)
	if second.Whole() == nil && second.Text != first.Text {
		return Verdict(second), fmt.Errorf("sampled again: %q after %q", second.Text, first.Text)
	}
	return Verdict(second), second.Typed()
}

func (t *target) otherBody(ctx context.Context) (string, error) {
	a := t.ask("other")
	if first := t.client.Send(ctx, a); first.Whole() != nil {
		return Verdict(first), first.Whole()
	}
	a.MaxTokens++
	second := t.client.Send(ctx, a)
	if second.Status != http.StatusConflict {
		return Verdict(second), fmt.Errorf("status %d, where the key was used with another body", second.Status)
	}
	return Verdict(second), second.Typed()
}

func (t *target) hurried(ctx context.Context) (string, error) {
	a := t.ask("")
	a.Deadline = time.Millisecond
	got := t.client.Send(ctx, a)
	return Verdict(got), got.Typed()
}

// dawdles reads slower than the answer comes.
func (t *target) dawdles(ctx context.Context) (string, error) {
	a := t.ask("")
	a.OnPiece = func(int) { time.Sleep(200 * time.Millisecond) }
	got := t.client.Send(ctx, a)
	return Verdict(got), got.Whole()
}

func (t *target) tooMuch(ctx context.Context) (string, error) {
	a := t.ask("")
	a.MaxTokens = 1 << 30
	got := t.client.Send(ctx, a)
	if got.Whole() == nil {
		return Verdict(got), fmt.Errorf("a billion tokens were accepted")
	}
	return Verdict(got), got.Typed()
}
