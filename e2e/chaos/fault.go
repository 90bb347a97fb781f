package chaos

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/surehand/surehand/e2e/fleet"
)

// Heal takes a fault back.
type Heal func(ctx context.Context) error

// nothing to take back: the fleet's own Heal starts and resumes processes.
func healed(context.Context) error { return nil }

// Fault is one thing that can happen to one process.
type Fault struct {
	Name, About string
	// Victims are names of processes, or "*" for every kind of them.
	Victims []string
	// Available is nil when the fault can be injected on this machine.
	Available func(*Stage) error
	// Prepare, before the request is sent; may be nil.
	Prepare func(ctx context.Context, s *Stage) error
	Inject  func(ctx context.Context, s *Stage, victim string) (Heal, error)
	// Expect is the required outcome in each phase, by victim or "*".
	Expect map[string]Expected
	// Shuns says that gateways may keep away from the victim for minutes afterwards,
	// as from a P whose bytes were wrong: the next cell gets another stage.
	Shuns bool
}

// everyone is one process of each kind, in the matrix's order.
var everyone = []string{"g1", "p1", "d1", "tp1", "td1", fleet.Redis, fleet.Temporal}

var registered []Fault

// register is called by the files of faults as they are loaded.
func register(f Fault) {
	if f.Available == nil {
		f.Available = func(*Stage) error { return nil }
	}
	if slices.Equal(f.Victims, []string{"*"}) {
		f.Victims = everyone
	}
	registered = append(registered, f)
}

// Faults are all of them, by name.
func Faults() []Fault {
	out := slices.Clone(registered)
	slices.SortFunc(out, func(a, b Fault) int { return strings.Compare(a.Name, b.Name) })
	return out
}

func find(name string) (Fault, error) {
	for _, f := range registered {
		if f.Name == name {
			return f, nil
		}
	}
	return Fault{}, fmt.Errorf("no fault is called %q", name)
}

// Inject does one fault to one process, outside a cell; the caller heals it.
func Inject(ctx context.Context, s *Stage, name, victim string) (Heal, error) {
	f, err := find(name)
	if err == nil {
		err = f.Available(s)
	}
	if err != nil {
		return nil, err
	}
	return f.Inject(ctx, s, victim)
}
