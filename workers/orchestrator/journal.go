package orchestrator

import (
	"context"
	"time"

	"github.com/surehand/surehand/activities/journal"
	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/steps"
)

// journalPatience is how long a stream waits for its journal when the store
// does not answer; then it goes on without (L8).
const journalPatience = time.Second

func journalName(in steps.Input) journal.Name { return journal.Name{Tenant: in.Tenant, ID: in.ID} }

// keepJournal has each event written before any client is shown it, so that what
// a client has can be found by whoever reads on.
func (o *Orchestrator) keepJournal(s *stream, in steps.Input, as handoff.Reader, kind string) {
	s.mu.Lock()
	s.kind = kind
	s.mu.Unlock()
	if !in.Journal || o.cfg.Journal == nil {
		return
	}
	w := journal.Writer{Run: in.Plan.Attempt.Handoff, Number: as.Number}
	about := journal.About{Body: in.Plan.BodyDigest, Model: in.Model, Kind: kind, Created: s.began.Unix()}
	s.mu.Lock()
	s.journaled = true
	s.mu.Unlock()
	o.recording(func(ctx context.Context) {
		err := o.patiently(ctx, func(ctx context.Context) error {
			_, err := o.cfg.Journal.Open(ctx, journalName(in), w, about, o.cfg.JournalTTL)
			return err
		})
		o.journalEnded(s, in, o.write(ctx, s, in, w, err))
	})
}

// write appends what the stream got until its end.
func (o *Orchestrator) write(ctx context.Context, s *stream, in steps.Input, w journal.Writer, err error) error {
	for err == nil {
		from, records, more, over := s.unwritten()
		switch {
		case len(records) > 0:
			err = o.patiently(ctx, func(ctx context.Context) error {
				return o.cfg.Journal.Append(ctx, journalName(in), w, from, records, o.cfg.JournalTTL)
			})
			if err == nil {
				s.show(from + len(records))
			}
		case over:
			return nil
		default:
			select {
			case <-more:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	return err
}

// journalEnded says what becomes of a stream whose journal takes no more.
func (o *Orchestrator) journalEnded(s *stream, in steps.Input, err error) {
	if err == nil {
		return
	}
	code := handoff.CodeOf(err)
	o.metrics.journals.WithLabelValues(code.String()).Inc()
	o.log.Warn("a journal takes no more", "handoff", in.ID, "code", code.String(), "error", err.Error())
	if code == handoff.CodeStaleIncarnation {
		s.superseded(handoff.Errorf(handoff.CodeStreamBroken, "another gateway reads this handoff now"))
		return
	}
	s.unjournal()
}

// patiently repeats what may be repeated while its result is unknown.
func (o *Orchestrator) patiently(ctx context.Context, do func(context.Context) error) error {
	for began := time.Now(); ; {
		err := do(ctx)
		if handoff.CodeOf(err) != handoff.CodeUnavailable || time.Since(began) > journalPatience || ctx.Err() != nil {
			return err
		}
		select {
		case <-time.After(recordPause):
		case <-ctx.Done():
			return err
		}
	}
}

// preload brings what an earlier reader delivered into the stream of the one
// that history names now, which reads on behind it. Without its journal only a
// client that begins again is served.
func (o *Orchestrator) preload(ctx context.Context, s *stream, in steps.Input, me handoff.Reader) {
	defer s.nowLoaded()
	if !in.Journal || o.cfg.Journal == nil {
		s.broke()
		return
	}
	w := journal.Writer{Run: in.Plan.Attempt.Handoff, Number: me.Number}
	var records []journal.Record
	var about journal.About
	err := o.patiently(ctx, func(ctx context.Context) (err error) {
		if _, err = o.cfg.Journal.Open(ctx, journalName(in), w, journal.About{}, o.cfg.JournalTTL); err == nil {
			about, records, err = journal.All(ctx, o.cfg.Journal, journalName(in))
		}
		return err
	})
	if err == nil {
		err = s.preload(in.Plan.Attempt, records)
	}
	if err != nil {
		s.broke()
		o.journalEnded(s, in, err)
		return
	}
	o.keepJournal(s, in, me, about.Kind)
}

// replay tells the stream from its journal; done when that held any of it.
func (o *Orchestrator) replay(ctx context.Context, s *stream, in steps.Input, h holder) (done bool, err error) {
	if o.cfg.Journal == nil {
		return false, nil
	}
	about, records, err := journal.All(ctx, o.cfg.Journal, journalName(in))
	switch {
	case handoff.CodeOf(err) == handoff.CodeGone:
		return false, nil
	case err != nil:
		return true, err
	case about.Body != in.Plan.BodyDigest, h.handoff != "" && about.Run != h.handoff, len(records) == 0:
		return false, nil
	}
	s.mu.Lock()
	s.role, s.kind, s.began = roleCopy, about.Kind, time.Unix(about.Created, 0)
	s.in.Model = about.Model
	s.mu.Unlock()
	for _, r := range records {
		s.repeat(fromRecord(r))
	}
	if !s.isOver() {
		position, _ := s.place(handoff.Attempt{})
		return true, handoff.Errorf(handoff.CodeStreamBroken, "after position %d: the journal of this handoff has no end, and nobody reads it any more", position)
	}
	o.metrics.attached.WithLabelValues("journal").Inc()
	return true, nil
}

// unwritten is what the journal has not got yet. A word that this process alone
// ends is not the handoff's: others may read on.
func (s *stream) unwritten() (from int, out []journal.Record, more <-chan struct{}, over bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.events[s.shown:min(len(s.events), s.shown+journal.MaxBatch)] {
		if e.Err != nil && e.Err.Code == handoff.CodeUnavailable {
			if len(out) == 0 {
				s.shown = len(s.events)
				s.wake()
			}
			break
		}
		out = append(out, toRecord(e))
	}
	return s.shown, out, s.waiting(), s.done && s.shown == len(s.events)
}

// show lets followers have the first n events.
func (s *stream) show(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shown = n
	s.wake()
}

// unjournal goes on without a journal.
func (s *stream) unjournal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.journaled, s.shown = false, len(s.events)
	s.wake()
}

// superseded ends the stream of a reader that is one no more: what it could not
// write is shown to nobody.
func (s *stream) superseded(err *handoff.Error) {
	s.mu.Lock()
	s.events = s.events[:s.shown]
	s.journaled = false
	e := Event{Position: s.tokens, Err: err}
	ended := s.append(e)
	if !ended { // it had an end, which is not its to tell
		s.events = append(s.events, e)
	}
	s.shown = len(s.events)
	s.wake()
	s.mu.Unlock()
	if ended {
		s.over(s, err.Code.String())
	}
}

// preload takes over what an earlier reader delivered of attempt a.
func (s *stream) preload(a handoff.Attempt, records []journal.Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.events) > 0 {
		return handoff.Errorf(handoff.CodeInternal, "a stream that began is loaded")
	}
	for _, r := range records {
		e := fromRecord(r)
		if s.append(e); e.Resumed != nil {
			s.base = e.Position
		}
	}
	switch {
	case s.tokens == 0:
	case s.epoch > a.Epoch:
		return handoff.Errorf(handoff.CodeGone, "what was delivered is of epoch %d, the plan of %d", s.epoch, a.Epoch)
	case s.epoch == a.Epoch && !s.reading.Deliver(a):
		return handoff.Errorf(handoff.CodeGone, "%s is given up", a)
	case s.epoch < a.Epoch:
		s.base = s.tokens // it goes on behind a resume
	}
	s.shown = len(s.events)
	s.wake()
	return nil
}

// broke says that what came before is not held here.
func (s *stream) broke() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = true
}

func (s *stream) nowLoaded() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.loaded != nil {
		close(s.loaded)
		s.loaded = nil
	}
}

// ready waits until what was delivered before is here; false when ctx ended.
func (s *stream) ready(ctx context.Context) bool {
	s.mu.Lock()
	loaded := s.loaded
	s.mu.Unlock()
	if loaded == nil {
		return true
	}
	select {
	case <-loaded:
		return true
	case <-ctx.Done():
		return false
	}
}

func toRecord(e Event) journal.Record {
	r := journal.Record{Epoch: e.Epoch, Position: e.Position, Tokens: e.Tokens, Text: e.Text, Finish: e.Finish}
	if e.Finish != "" {
		u := e.Usage
		r.Prompt, r.Completion, r.Direct, r.Cached, r.Recomputed = u.Prompt, u.Completion, u.Direct, u.Cached, u.Recomputed
	}
	if e.Resumed != nil {
		r.From = e.Resumed.From
	}
	if e.Err != nil {
		r.Code, r.Detail = e.Err.Code.String(), e.Err.Detail
	}
	return r
}

func fromRecord(r journal.Record) Event {
	e := Event{Epoch: r.Epoch, Position: r.Position, Tokens: r.Tokens, Text: r.Text, Finish: r.Finish}
	if r.Finish != "" {
		e.Usage = Usage{Prompt: r.Prompt, Completion: r.Completion, Direct: r.Direct, Cached: r.Cached, Recomputed: r.Recomputed}
	}
	if r.From != 0 {
		e.Resumed = &steps.Resumed{From: r.From, Position: r.Position}
	}
	if r.Code != "" {
		e.Err = &handoff.Error{Code: handoff.ParseCode(r.Code), Detail: r.Detail}
	}
	return e
}
