package fault

import (
	"context"
	"fmt"
	"time"

	"github.com/surehand/surehand/e2e/fleet"
	"github.com/surehand/surehand/e2e/traffic"
)

// servesWithin bounds how long a fleet may take to serve every pair again.
const servesWithin = 30 * time.Second

// Serves waits until every P and D is served through a client at the first try
// and all its steps are traced. After a fault a breaker may keep away from a
// pair for a while, and a strike at it would miss.
func Serves(ctx context.Context, f *fleet.Fleet, c *traffic.Client) error {
	ctx, cancel := context.WithTimeout(ctx, servesWithin)
	defer cancel()
	o := f.Options
	for i := range max(o.Prefill, o.Decode) {
		a := traffic.Ask{Model: o.ModelName(), Prompt: traffic.Words(32), MaxTokens: 2,
			Prefill: fmt.Sprintf("p%d", min(i+1, o.Prefill)), Decode: fmt.Sprintf("d%d", min(i+1, o.Decode))}
		if err := pair(ctx, f, c, a); err != nil {
			return fmt.Errorf("%s to %s through %s: %w", a.Prefill, a.Decode, c.Base, err)
		}
	}
	return nil
}

func pair(ctx context.Context, f *fleet.Fleet, c *traffic.Client, a traffic.Ask) error {
	for {
		m := f.Mark()
		err := c.Send(ctx, a).Whole()
		if events := f.Since(m); err == nil && len(Prefilled(events)) == 1 && len(Committed(events)) == 1 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not served within %s: %w; events: %v", servesWithin, err, f.Since(m))
		case <-time.After(100 * time.Millisecond):
		}
	}
}
