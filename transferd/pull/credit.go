package pull

import "sync"

// RailBytes bounds what is asked for and not here by all pulls over one rail; past
// it each of them asks for one batch at a time, so none ever waits for another.
const RailBytes = 256 << 20

// credits counts bytes in flight by rail.
type credits struct {
	mu     sync.Mutex
	flight map[string]uint64
}

// room is how much a pull may still ask for over a rail.
func (c *credits) room(rail string) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return RailBytes - min(c.flight[rail], RailBytes)
}

func (c *credits) take(rail string, bytes uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.flight == nil {
		c.flight = map[string]uint64{}
	}
	c.flight[rail] += bytes
}

func (c *credits) give(rail string, bytes uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	left := c.flight[rail] - min(bytes, c.flight[rail])
	if left == 0 {
		delete(c.flight, rail)
		return
	}
	c.flight[rail] = left
}
