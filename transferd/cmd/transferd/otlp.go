package main

import (
	"context"
	"log/slog"
	"os"
	"strconv"

	"github.com/spf13/viper"

	"github.com/surehand/surehand/transferd/otlp"
)

// traces sends spans to a collector, where one is named; the daemon begins no
// trace of its own. What is given ends it.
func traces(ctx context.Context, v *viper.Viper, log *slog.Logger) (stop func() error, err error) {
	c := otlp.Config{Endpoint: v.GetString("otlp-endpoint"), Service: "surehand-transferd", Protocol: otlp.Protocol(os.Getenv), Log: log}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"} {
		if c.Endpoint == "" {
			c.Endpoint = os.Getenv(name)
		}
	}
	if off, err := strconv.ParseBool(os.Getenv("OTEL_SDK_DISABLED")); c.Endpoint == "" || err == nil && off {
		return func() error { return nil }, nil
	}
	return otlp.Start(ctx, c)
}
