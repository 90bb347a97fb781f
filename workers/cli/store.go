package cli

import (
	"fmt"
	"net"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/spf13/cobra"
)

// storeTick is how often the store's clocks advance: it has no clock of its
// own, and looking at each access would cost a walk over all keys.
const storeTick = 100 * time.Millisecond

func newStore() *cobra.Command {
	var listen string
	c := &cobra.Command{
		Use: "store", Short: "A Redis-compatible store in memory, for dev", Hidden: true, Args: cobra.NoArgs,
		Long: "A Redis-compatible store in memory, as a process of its own: a kill -9 empties it,\nwhich costs refusals and never safety. Loopback only.",
	}
	c.Flags().StringVar(&listen, "listen", "127.0.0.1:6379", "loopback address")
	c.RunE = func(c *cobra.Command, _ []string) error {
		ctx, stop := untilStopped(c)
		defer stop()
		address, err := net.ResolveTCPAddr("tcp", listen)
		if err != nil {
			return err
		}
		if !address.IP.IsLoopback() {
			return fmt.Errorf("store on %s: it asks nobody who they are, so it listens on loopback only", listen)
		}
		m := miniredis.NewMiniRedis()
		if err := m.StartAddr(address.String()); err != nil {
			return fmt.Errorf("store: %w", err)
		}
		defer m.Close()
		if err := sayReady(c.OutOrStdout(), map[string]string{"redis": m.Addr()}); err != nil {
			return err
		}
		tick := time.NewTicker(storeTick)
		defer tick.Stop()
		last := time.Now()
		for {
			select {
			case now := <-tick.C:
				m.FastForward(now.Sub(last))
				last = now
			case <-ctx.Done():
				return nil
			}
		}
	}
	return c
}
