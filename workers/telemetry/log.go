package telemetry

import (
	"fmt"
	"io"
	"log/slog"
	"os"
)

// Logger writes JSON lines to w, each with the process's name and pid.
// Levels are debug, info, warn and error.
func Logger(w io.Writer, process, level string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("log level %q is none of debug, info, warn, error", level)
	}
	h := slog.NewJSONHandler(w, &slog.HandlerOptions{Level: l})
	return slog.New(h).With("process", process, "pid", os.Getpid()), nil
}
