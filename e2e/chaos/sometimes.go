package chaos

import (
	"errors"
	"fmt"

	"github.com/surehand/surehand/e2e/fleet"
)

// sometimes are rare states that a run over all faults has to have seen, or it
// was too weak to say much. Each is told by the daemons themselves.
var sometimes = []struct {
	Name string
	Seen func(fleet.Event) bool
}{
	{"a target was adopted by the next life of its daemon", func(e fleet.Event) bool { return e.Name == "adopt" }},
	{"a lease ended an attempt", func(e fleet.Event) bool { return e.Name == "expire" }},
	{"a target was closed before its commit", func(e fleet.Event) bool { return e.Became("target", "closed") }},
	{"a decode was ended after its commit", func(e fleet.Event) bool {
		return e.Name != "finish" && e.Became("target", "aborted") || e.Name == "abandon" && e.From == "committed" // its engine died
	}},
	{"another epoch was opened", func(e fleet.Event) bool { return e.Became("target", "opened") && e.Attempt.Epoch > 1 }},
	{"something late was refused as closed", func(e fleet.Event) bool { return !e.Accepted() && e.Code == "closed" }},
	{"a tombstone was left for what is not known", func(e fleet.Event) bool {
		return (e.Name == "undo" || e.Name == "release") && e.From == "unknown" && e.To == "closed"
	}},
	{"a source was closed under its reader", func(e fleet.Event) bool { return e.Became("source", "closed") && e.Name != "finish" }},
	{"another life's message was refused", func(e fleet.Event) bool { return e.Code == "stale_incarnation" }},
}

// Tally counts rare states.
type Tally map[string]int

func (t Tally) add(events []fleet.Event) {
	for _, e := range events {
		for _, s := range sometimes {
			if s.Seen(e) {
				t[s.Name]++
			}
		}
	}
}

// Rare is one line of the table of rare states.
type Rare struct {
	Name string
	Seen int
}

// Sometimes tells how often each rare state was seen, those never seen included; nothing
// of a deployment whose daemons' traces are not ours to read.
func (c *Campaign) Sometimes() []Rare {
	if c.seen == nil {
		return nil
	}
	return c.seen.table()
}

// Weak is an error when all cells of the matrix ran and a rare state was never seen:
// whatever they say of it, they say nothing.
func (c *Campaign) Weak() (err error) {
	if _, _, skipped := c.Counts(); skipped > 0 || len(c.Results) < len(All()) {
		return nil
	}
	for _, r := range c.Sometimes() {
		if r.Seen == 0 {
			err = errors.Join(err, fmt.Errorf("every cell ran, and never %s", r.Name))
		}
	}
	return err
}

// Sometimes tells it of events.
func Sometimes(events []fleet.Event) []Rare {
	t := Tally{}
	t.add(events)
	return t.table()
}

func (t Tally) table() (out []Rare) {
	for _, s := range sometimes {
		out = append(out, Rare{s.Name, t[s.Name]})
	}
	return out
}

func (r Rare) String() string {
	if r.Seen == 0 {
		return "   never " + r.Name
	}
	return fmt.Sprintf("%8d %s", r.Seen, r.Name)
}
