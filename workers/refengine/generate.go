package refengine

import (
	"context"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/workers/refengine/answer"
	"github.com/surehand/surehand/workers/refengine/compute"
	"github.com/surehand/surehand/workers/refengine/schedule"
)

// Request is one prompt for Generate.
type Request struct {
	Attempt   handoff.Attempt // names the synthetic state; the transformer does not look at it
	Prompt    []byte
	Sampling  compute.Sampling
	MaxTokens int
	Stop      []string
}

// Generate computes prompt and answer in this engine, without any handoff: the
// aggregated baseline. each is called with every piece; its error ends it.
func (e *Engine) Generate(ctx context.Context, r Request, each func(answer.Event) error) error {
	tokens, err := e.compute.Encode(r.Prompt)
	if err != nil {
		return err
	}
	if err := e.fits(len(tokens), r.MaxTokens, r.Stop); err != nil {
		return err
	}
	q, err := e.allocate(nil, len(tokens)+r.MaxTokens)
	if err != nil {
		return err
	}
	defer e.release(q) // both tasks are done by then
	prefill, err := e.compute.Prefill(q, r.Attempt, tokens, 0, r.Sampling)
	if err != nil {
		return err
	}
	done := 0
	err = finish(ctx, e.device.Prefill(len(tokens), func(n int) error {
		if err := prefill.Chunk(n, nil); err != nil {
			return err
		}
		if done += n; done == len(tokens) {
			return prefill.Finish()
		}
		return nil
	}))
	if err != nil {
		return err
	}
	d := decoder{run: e.compute.Decode(q, r.Attempt, len(tokens)), cut: answer.NewCutter(r.Stop), limit: uint32(r.MaxTokens),
		log: answer.NewLog(), counts: answer.Counts{Recomputed: uint32(len(tokens))}}
	task := e.device.Decode(d.step)
	stop := context.AfterFunc(ctx, func() { task.Stop(context.Cause(ctx)) })
	defer stop()
	followed := make(chan error, 1)
	go func() { followed <- d.log.Follow(ctx, 0, each) }()
	for {
		select {
		case <-task.Done():
			if err := task.Err(); err != nil {
				d.log.Break(err)
			}
			return <-followed
		case err := <-followed:
			task.Stop(err)
			<-task.Done()
			return err
		}
	}
}

// finish waits for a task and stops it when ctx ends.
func finish(ctx context.Context, t *schedule.Task) error {
	select {
	case <-t.Done():
	case <-ctx.Done():
		t.Stop(context.Cause(ctx))
		<-t.Done()
	}
	return t.Err()
}
