package paged

import (
	"errors"
	"sync"
	"testing"
)

func TestHoldersOnManyGoroutinesNeverShareABlock(t *testing.T) {
	a := small(t, 9, true)
	var wg sync.WaitGroup
	for mark := range byte(4) {
		wg.Go(func() {
			for range 300 {
				blocks, err := a.Allocate(3)
				if errors.Is(err, ErrFull) {
					continue
				}
				for _, b := range blocks {
					memory := a.Bytes(a.Layout().Block(b))
					for i := range memory {
						if memory[i] != 0xFF {
							t.Errorf("block %d came unscrubbed", b)
						}
						memory[i] = mark
					}
				}
				if err := a.Release(blocks); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if c := a.Count(); c.Free != c.Blocks {
		t.Errorf("at rest: %+v", c)
	}
}
