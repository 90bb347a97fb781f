package refengine

import (
	"context"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/transferd/client"
)

// daemon is what the engine needs of the transferd beside it; *client.Engine is
// the one, tests have another.
type daemon interface {
	Node() handoff.NodeID
	Incarnation() handoff.Incarnation
	PeerAddress() string
	PeerProtocol() uint32
	OpenTarget(context.Context, client.TargetSpec) (handoff.Token, error)
	OpenSource(context.Context, client.SourceSpec) (client.SourceGrant, error)
	Announce(ctx context.Context, a handoff.Attempt, pieces, digests []uint32) error
	Seal(context.Context, handoff.Attempt) error
	CloseSource(context.Context, handoff.Attempt, handoff.Code) error
	FinishTarget(context.Context, handoff.Attempt) error
	Freed(ctx context.Context, a handoff.Attempt, source bool) error
	IsVisible(slot uint32, a handoff.Attempt) bool
	Events() <-chan client.Event
	Close() error
}

var _ daemon = (*client.Engine)(nil)

// insist repeats op, which must be safe to repeat, until the daemon has answered
// it, or until enough says that the answer does not matter any more.
func insist(ctx context.Context, enough <-chan struct{}, op func(context.Context) error) error {
	for pause := retryFirst; ; pause = min(2*pause, retryLast) {
		err := op(ctx)
		if err == nil || handoff.CodeOf(err) != handoff.CodeUnavailable {
			return err
		}
		wait := time.NewTimer(pause)
		select {
		case <-wait.C:
		case <-enough:
			wait.Stop()
			return nil
		case <-ctx.Done():
			wait.Stop()
			return err
		}
	}
}
