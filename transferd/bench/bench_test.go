package bench

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestEveryTableIsMovedByEveryLaneAndPrinted(t *testing.T) {
	for _, name := range Tables {
		var out bytes.Buffer
		cfg := Config{Bytes: 1 << 20, Tables: []string{name}, Rounds: 1, Pairs: 1, Only: "crc32c", Dir: t.TempDir(), Out: &out}
		if err := Run(context.Background(), cfg); err != nil {
			t.Fatal(name, err)
		}
		for _, row := range []string{copyRow, "memfd + crc32c", "tcp + crc32c", "tcp + mutual tls + crc32c"} {
			if !strings.Contains(out.String(), row) {
				t.Errorf("no %q in\n%s", row, out.String())
			}
		}
	}
}

func TestEveryPieceHasAPlaceOfItsOwn(t *testing.T) {
	for _, name := range Tables {
		s, err := table(name, 8<<20)
		if err != nil {
			t.Fatal(err)
		}
		offsets, size := scatter(s)
		used := make([]bool, size/1024)
		for i, at := range offsets {
			p, _ := s.Place(uint32(i))
			for k := at / 1024; k < (at+uint64(p.Bytes))/1024; k++ {
				if used[k] {
					t.Fatalf("%s: piece %d lies on another", name, i)
				}
				used[k] = true
			}
		}
	}
}
