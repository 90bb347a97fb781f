package orchestrator

import (
	"bytes"
	"context"

	"github.com/surehand/surehand/activities/engine"
	"github.com/surehand/surehand/activities/journal"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
)

// resume has a stream whose D died go on behind what was delivered, under
// another epoch, where its client asked for that. This reader delivers no more
// of the attempt: that is recorded before the workflow is asked for the next.
func (o *Orchestrator) resume(s *stream, p handoff.Plan, end steps.Ended) bool {
	in := s.input()
	if in.Resume != steps.ResumeReplay || end.Usage.Completion == 0 && s.base == 0 {
		return false
	}
	position, ok := s.resumeAt(p.Attempt)
	if !ok || position >= in.Sampling.MaxTokens {
		return false
	}
	o.steps.Attempts.Unkeep(p.Attempt)
	end.Code, end.Resumed = handoff.CodeEngine.String(), &steps.Resumed{From: p.Attempt.Epoch, Position: position}
	o.log.Warn("a decode broke and is resumed", "handoff", in.ID, "attempt", p.Attempt.String(), "position", position)
	o.metrics.resumed.Inc()
	o.report(s, end)
	return true
}

// resumeAt gives an attempt up that was delivered, and says up to where.
func (s *stream) resumeAt(a handoff.Attempt) (position uint32, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done || !s.journaled || s.tokens == 0 || !s.reading.Resume(a) {
		return 0, false
	}
	return s.tokens, true
}

// placeIn is the next position to read of an attempt, in its own count, and
// where its first token stands in the stream.
func (s *stream) placeIn(a handoff.Attempt) (from, base uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reading.State(a) == handoff.ReaderDelivering {
		from = s.tokens - s.base
	}
	return from, s.base
}

// usageOf counts a prompt without the delivered tokens that a resume put behind it.
func usageOf(prompt, base uint32, c engine.Counts) Usage {
	u := Usage{Prompt: prompt, Completion: base + c.Completion, Direct: c.Direct, Cached: c.Cached, Recomputed: c.Recomputed}
	for _, n := range []*uint32{&u.Direct, &u.Recomputed, &u.Cached} {
		again := min(base, *n)
		*n, base = *n-again, base-again
	}
	return u
}

// delivered is the text of the tokens before a resume: from the stream that is
// read here, else from its journal. Exactly so many tokens, or CodeGone.
func (o *Orchestrator) delivered(ctx context.Context, in steps.Input) ([]byte, error) {
	if s := o.hub.run(in.Plan.Attempt.Handoff); s != nil {
		if text, ok := s.text(in.Resumed.Position); ok {
			return text, nil
		}
	}
	if o.cfg.Journal == nil {
		return nil, handoff.Errorf(handoff.CodeGone, "nobody here keeps what was delivered")
	}
	about, records, err := journal.All(ctx, o.cfg.Journal, journalName(in))
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	tokens := uint32(0)
	for _, r := range records {
		if r.Position < in.Resumed.Position {
			text.WriteString(r.Text)
			tokens += r.Tokens
		}
	}
	if tokens != in.Resumed.Position || about.Run != in.Plan.Attempt.Handoff {
		return nil, handoff.Errorf(handoff.CodeGone, "%d of %d delivered tokens are kept", tokens, in.Resumed.Position)
	}
	return text.Bytes(), nil
}

// text of the first so many tokens, if just these are here.
func (s *stream) text(tokens uint32) ([]byte, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var text bytes.Buffer
	n := uint32(0)
	for _, e := range s.events {
		if e.Position < tokens {
			text.WriteString(e.Text)
			n += e.Tokens
		}
	}
	return text.Bytes(), n == tokens
}
