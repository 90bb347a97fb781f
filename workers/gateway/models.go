package gateway

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/workers/orchestrator"
)

// models remembers for a moment what can be asked for, so that a request for a
// known model costs no look-up.
type models struct {
	front orchestrator.Front

	mu    sync.Mutex
	known []orchestrator.Model
	at    time.Time
}

// list is never older than modelsFresh.
func (m *models) list(ctx context.Context) ([]orchestrator.Model, error) {
	m.mu.Lock()
	known, at := m.known, m.at
	m.mu.Unlock()
	if !at.IsZero() && time.Since(at) < modelsFresh {
		return known, nil
	}
	return m.refresh(ctx)
}

func (m *models) refresh(ctx context.Context) ([]orchestrator.Model, error) {
	asked := time.Now()
	known, err := m.front.Models(ctx)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if asked.After(m.at) {
		m.known, m.at = known, asked
	}
	return known, nil
}

// find looks once more before it says no: the model may have come just now.
func (m *models) find(ctx context.Context, name string) (orchestrator.Model, error) {
	for _, look := range []func(context.Context) ([]orchestrator.Model, error){m.list, m.refresh} {
		known, err := look(ctx)
		if err != nil {
			return orchestrator.Model{}, err
		}
		for _, k := range known {
			if k.Name == name {
				return k, nil
			}
		}
		if len(known) == 0 {
			return orchestrator.Model{}, handoff.Errorf(handoff.CodeUnavailable, "no engine serves any model now")
		}
	}
	return orchestrator.Model{}, &refusal{
		cause: handoff.Errorf(handoff.CodeInvalid, "the model %q is not served here; GET /v1/models lists those that are", clip(name)),
		param: "model", name: "model_not_found", status: http.StatusNotFound,
	}
}
