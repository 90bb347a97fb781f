// Package check judges histories of operations that ran side by side: is there
// an order of them, in which each took effect at one instant between its ask and
// its answer, that the protocol allows? Porcupine (github.com/anishathalye/
// porcupine) finds it or says that there is none; the models here are the
// protocol's own sentences. An operation whose answer was lost may have happened
// or not, at any later time: the models fork.
package check

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// Op is what was asked of one object, and what was answered.
type Op struct {
	Object string // an attempt, a grant, a key, an engine
	Name   string // of the operation
	Who    string // the handoff or attempt that it was for
	Body   string
	Size   uint32
}

// Unknown is the answer of an operation whose answer was lost.
const Unknown = "unknown"

// Log collects a history. The zero value is ready; any goroutine may use it.
type Log struct {
	mu    sync.Mutex
	began time.Time
	ops   []porcupine.Operation
	seq   int64
}

// Call notes an ask; the function that it gives notes the answer.
func (l *Log) Call(op Op) (answered func(answer string)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seq++
	i := len(l.ops)
	l.ops = append(l.ops, porcupine.Operation{ClientId: i, Input: op, Call: l.seq, Output: Unknown, Return: math.MaxInt64})
	return func(answer string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if answer == Unknown {
			return
		}
		l.seq++
		l.ops[i].Output, l.ops[i].Return = answer, l.seq
	}
}

// String is every operation with its interval, for a person who has to find out.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out strings.Builder
	for _, o := range l.ops {
		fmt.Fprintf(&out, "%d..%d %+v: %v\n", o.Call, o.Return, o.Input, o.Output)
	}
	return out.String()
}

// Judge says whether the history of every object is one that the model allows;
// undecided within the time, it is not refused.
func (l *Log) Judge(m Model, within time.Duration) (ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return porcupine.CheckOperationsTimeout(m.porcupine(), l.ops, within) != porcupine.Illegal
}

// Len is the number of operations.
func (l *Log) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.ops)
}

// Model is what may happen to one object: the states that an operation may lead
// to from a state, given its answer. No state: the answer is wrong there.
type Model struct {
	Name  string
	First string
	Step  func(state string, op Op, answer string) []string
}

func (m Model) porcupine() porcupine.Model {
	n := porcupine.NondeterministicModel{
		Init: func() []any { return []any{m.First} },
		Step: func(state, in, out any) (next []any) {
			for _, s := range m.Step(state.(string), in.(Op), out.(string)) {
				next = append(next, s)
			}
			return next
		},
		Partition: func(all []porcupine.Operation) (out [][]porcupine.Operation) {
			at := map[string]int{}
			for _, o := range all {
				name := o.Input.(Op).Object
				if _, ok := at[name]; !ok {
					at[name] = len(out)
					out = append(out, nil)
				}
				out[at[name]] = append(out[at[name]], o)
			}
			return out
		},
	}
	return n.ToModel()
}
