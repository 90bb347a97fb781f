package telemetry

import (
	"context"
	"encoding/json"
	"net/http"
	"time"
)

// readyTimeout bounds one readiness question: a probe wants an answer, and no
// answer within a second means not ready.
const readyTimeout = time.Second

// Check is nil when the process could serve now; else it says what is missing.
type Check func(ctx context.Context) error

// Alive answers as long as the process answers at all.
func Alive() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, map[string]string{"status": "ok"})
	})
}

// Ready asks each check in turn and answers 503 with the first refusal.
func Ready(checks ...Check) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
		defer cancel()
		for _, check := range checks {
			if err := check(ctx); err != nil {
				answer(w, http.StatusServiceUnavailable, map[string]string{"status": "not ready", "missing": err.Error()})
				return
			}
		}
		answer(w, http.StatusOK, map[string]string{"status": "ready"})
	})
}

func answer(w http.ResponseWriter, status int, body map[string]string) {
	text, err := json.Marshal(body)
	if err != nil { // a map of strings always encodes
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n')) // the prober left: nobody to tell
}
