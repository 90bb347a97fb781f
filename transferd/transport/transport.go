// Package transport is the port between a pull and the way its bytes come: a
// Lane moves announced pieces from one source into the places that its Sink
// gives, and hands over what TP says. Adapters: local, tcp. A lane over RDMA or
// NVLink will be another Transport: its bytes land by themselves, its Step hands
// over completions, and its Close destroys the queue pair.
package transport

import (
	"context"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/contracts/wire"
)

// Lane is an open way to one source. Its methods are called by the goroutine of
// one pull, except Ping and Interrupt, which any may call. All errors are typed.
type Lane interface {
	// Name is the transport that is really used.
	Name() string
	// Source is what there is to read.
	Source() wire.Source
	// Streams is how many batches can be on their way side by side.
	Streams() int
	// Read asks for announced pieces; they come by Step, or by a stream beside it.
	Read(runs []wire.Run) error
	// Ask puts the question of the validated read; the answer comes by Step.
	Ask(q wire.Question) error
	// Step waits for the next thing to come and hands it to the sink: announced
	// runs, a batch of pieces, the manifest, an answer, a sign of life. It fails
	// with CodeProgress when nothing comes, and no byte, within the deadline.
	Step(deadline time.Duration) error
	// Finish gives the reader's word that it read everything and stops.
	Finish() error
	// Ping renews the grant's lease at TP.
	Ping() error
	// Interrupt makes Step return soon: the pull is over.
	Interrupt()
	// Close destroys the way. When it returns, nothing that was asked for can land
	// any more (rule 10).
	Close()
}

// Sink is the pull's side of a lane, called by any of its streams. An error of it
// ends the Step with that error.
type Sink interface {
	// Announced says that pieces may be asked for.
	Announced(runs []wire.Run) error
	// Places gives the memory of each piece of a batch, in order; it refuses a
	// piece that was not asked for or has another length.
	Places(entries []wire.Entry, into [][]byte) ([][]byte, error)
	// Landed says that the bytes of a batch are in place. Check is the CRC32C of
	// what was read at the source; places is nil when it was taken of the places
	// themselves, so that nothing is left to compare.
	Landed(entries []wire.Entry, places [][]byte) error
	// Sealed hands over the frozen manifest.
	Sealed(s wire.Sealed) error
	// Answered hands over TP's answer to the question.
	Answered(a wire.Answer) error
	// Advance asks for more and verifies, as what came allows. A lane calls it after
	// what came beside Step; after a Step the pull does by itself.
	Advance(l Lane) error
}

// Target is whom and what a lane is opened to.
type Target struct {
	Address    string // host:port of TP's peer side, by the rail that was chosen
	Node       handoff.NodeID
	Instance   handoff.Incarnation // the life of TP that the plan names
	Attempt    handoff.Attempt
	Capability []byte
	Unchecked  bool // the sink looks at no checksum: none need be taken
	// Trace is the pull's traceparent, for a source whose daemon takes one; else empty.
	Trace string
}

// Transport opens lanes of one kind.
type Transport interface {
	// Name is what a pull may require, and what its report says was used.
	Name() string
	// Reaches says why it can not serve t, without asking anybody; nil: it may try.
	Reaches(t Target) error
	// Open reaches the source, within ctx.
	Open(ctx context.Context, t Target, s Sink) (Lane, error)
}
