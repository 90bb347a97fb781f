package daemon_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/surehand/surehand/transferd/client"
)

// A data folder that cannot be written refuses engines and says why, until it can.
func TestAFullDiskRefusesEnginesAndSaysWhy(t *testing.T) {
	h := startHost(t, "td")
	block := filepath.Join(h.cfg.Data, "engines.next") // the file that is written first
	check(t, os.Mkdir(block, 0o700))
	memory, err := client.NewMemory("segment", segment)
	check(t, err)
	defer func() { check(t, memory.Close()) }()
	cfg := client.EngineConfig{Socket: h.cfg.EngineSocket, Engine: "d1", Revision: shape.Revision, Layout: shape.Layout, Segment: memory, FlagSlots: 4}
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	_, err = client.Attach(ctx, cfg)
	cancel()
	if err == nil || !strings.Contains(err.Error(), "cannot be recorded") {
		t.Fatal(err)
	}
	if len(h.Core().Engines()) != 0 {
		t.Fatal("it was attached")
	}
	check(t, os.Remove(block))
	e, err := client.Attach(background(t), cfg)
	check(t, err)
	check(t, e.Close())
}
