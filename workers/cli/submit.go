package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	submitv1 "github.com/surehand/surehand/contracts/gen/surehand/submit/v1"
	"github.com/surehand/surehand/contracts/rpc"
)

const promptMost = 1 << 20

const submitExamples = `  surehand submit "What do you think of Mr. Knightley?"
  surehand submit --temperature 0 --max-tokens 50 --key my-order-7 "Tell me about the weather."
  echo "Tell me about the weather." | surehand submit -
  surehand submit --prefill p1 --decode d2 "With engines of my choice."`

// question is what the flags of submit say.
type question struct {
	model, key, prefill, decode string
	maxTokens                   uint32
	temperature, topP           float64
	seed                        uint64
	stop                        []string
	resume                      string
	deadline                    time.Duration
	chat, quiet, journal        bool
}

func newSubmit() *cobra.Command {
	var s server
	var q question
	c := &cobra.Command{
		Use: "submit PROMPT", Short: "Submit a request and stream its answer", Example: submitExamples, Args: cobra.ExactArgs(1),
		Long: "Submit a request and stream its answer to stdout; what became of it goes to stderr.\nA prompt of - is read from stdin. A submit that is interrupted is cancelled.",
		RunE: func(c *cobra.Command, args []string) error {
			prompt, err := readPrompt(c.InOrStdin(), args[0])
			if err != nil {
				return err
			}
			return s.call(c, 0, func(ctx context.Context, client submitv1.SubmitClient) error {
				return stream(ctx, client, q.request(c, s.tenant, prompt), c.OutOrStdout(), c.ErrOrStderr(), q.quiet)
			})
		},
	}
	s.flags(c)
	f := c.Flags()
	f.StringVar(&q.model, "model", "surehand-reference", "model to ask")
	f.StringVar(&q.key, "key", "", "idempotency key: the same key and body give the same handoff and stream")
	f.Uint32Var(&q.maxTokens, "max-tokens", 0, "tokens to generate at most (default: the gateway's)")
	f.Float64Var(&q.temperature, "temperature", 1, "0 for the likeliest token")
	f.Float64Var(&q.topP, "top-p", 1, "share of the likeliest tokens to draw from")
	f.Uint64Var(&q.seed, "seed", 0, "seed of the draw (default: a random one)")
	f.StringArrayVar(&q.stop, "stop", nil, "text that ends the answer (repeatable)")
	f.DurationVar(&q.deadline, "deadline", 0, "until the first token (default: the gateway's)")
	f.StringVar(&q.prefill, "prefill", "", "engine for the prefill (default: placed)")
	f.StringVar(&q.decode, "decode", "", "engine for the decode (default: placed)")
	f.BoolVar(&q.chat, "chat", false, "send the prompt as a chat message")
	f.BoolVar(&q.journal, "journal", false, "keep the answer for a while, so that attach finds it")
	f.StringVar(&q.resume, "resume", "", "replay: go on after D's death, under another epoch, and say so (default: end with a typed error)")
	f.BoolVar(&q.quiet, "quiet", false, "print the answer alone")
	return c
}

func newAttach() *cobra.Command {
	var s server
	var from, epoch uint32
	var quiet bool
	c := &cobra.Command{
		Use: "attach HANDOFF", Short: "Stream a handoff that was submitted before, from where its client stopped", Args: cobra.ExactArgs(1),
		Example: "  surehand submit --journal \"Tell me about the weather.\"\n  surehand attach HANDOFF\n  surehand attach --from 57 HANDOFF   # after 57 tokens",
		RunE: func(c *cobra.Command, args []string) error {
			return s.call(c, 0, func(ctx context.Context, client submitv1.SubmitClient) error {
				began := time.Now()
				events, err := client.Attach(ctx, &submitv1.AttachRequest{Handoff: args[0], Tenant: s.tenant, From: from, Epoch: epoch})
				if err != nil {
					return err
				}
				return tell(events, began, c.OutOrStdout(), c.ErrOrStderr(), quiet)
			})
		},
	}
	s.flags(c)
	c.Flags().Uint32Var(&from, "from", 0, "tokens that are there already")
	c.Flags().Uint32Var(&epoch, "epoch", 1, "of the last of them")
	c.Flags().BoolVar(&quiet, "quiet", false, "print the answer alone")
	return c
}

func readPrompt(in io.Reader, arg string) (string, error) {
	if arg != "-" {
		return arg, nil
	}
	text, err := io.ReadAll(io.LimitReader(in, promptMost+1))
	if err != nil {
		return "", fmt.Errorf("read the prompt: %w", err)
	}
	if len(text) > promptMost {
		return "", fmt.Errorf("the prompt is larger than %d bytes", promptMost)
	}
	return strings.TrimSuffix(string(text), "\n"), nil
}

func (q *question) request(c *cobra.Command, tenant, prompt string) *submitv1.SubmitRequest {
	r := &submitv1.SubmitRequest{
		Model: q.model, MaxTokens: q.maxTokens, Stop: q.stop, IdempotencyKey: q.key, Tenant: tenant,
		Temperature: &q.temperature, TopP: &q.topP, DeadlineMs: q.deadline.Milliseconds(), Prefill: q.prefill, Decode: q.decode, Journal: q.journal, Resume: q.resume,
	}
	if c.Flags().Changed("seed") {
		r.Seed = &q.seed
	}
	if q.chat {
		r.Messages = []*submitv1.Message{{Role: "user", Content: prompt}}
	} else {
		r.Prompt = prompt
	}
	return r
}

// stream copies text to out as it comes and tells about the handoff on about.
func stream(ctx context.Context, client submitv1.SubmitClient, r *submitv1.SubmitRequest, out, about io.Writer, quiet bool) error {
	began := time.Now()
	events, err := client.Submit(ctx, r)
	if err != nil {
		return err
	}
	return tell(events, began, out, about, quiet)
}

// tell copies a stream to its end.
func tell(events interface {
	Recv() (*submitv1.SubmitEvent, error)
}, began time.Time, out, about io.Writer, quiet bool) error {
	if quiet {
		about = io.Discard
	}
	var first time.Duration
	whole := false
	for {
		e, err := events.Recv()
		switch {
		case errors.Is(err, io.EOF) && whole:
			return nil
		case errors.Is(err, io.EOF):
			return errors.New("the stream ended without its last event")
		case err != nil:
			return err
		}
		if a := e.GetAccepted(); a != nil {
			fmt.Fprintf(about, "handoff %s%s\n", a.GetHandoff(), map[bool]string{true: " (joined)"}[a.GetJoined()])
		}
		if d := e.GetDelta(); d != nil {
			if first == 0 {
				first = time.Since(began)
			}
			if _, err := io.WriteString(out, d.GetText()); err != nil {
				return err
			}
		}
		if r := e.GetResumed(); r != nil {
			fmt.Fprintf(about, "\nresumed at position %d: epoch %d goes on where epoch %d broke\n", r.GetPosition(), r.GetToEpoch(), r.GetFromEpoch())
		}
		if f := e.GetFailed(); f != nil {
			fmt.Fprintln(out)
			return rpc.FromFailure(f)
		}
		if f := e.GetFinished(); f != nil {
			whole = true
			u := f.GetUsage()
			fmt.Fprintln(out)
			fmt.Fprintf(about, "%s; first token after %s; %d prompt tokens (%d direct, %d cached, %d recomputed), %d generated in %s\n",
				f.GetFinishReason(), first.Round(time.Millisecond), u.GetPromptTokens(), u.GetDirectTokens(), u.GetCachedTokens(),
				u.GetRecomputedTokens(), u.GetCompletionTokens(), time.Since(began).Round(time.Millisecond))
		}
	}
}
