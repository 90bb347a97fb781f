// fakeengine is one fake P or D of the comparison with other routers. Loopback only.
package main

import (
	"fmt"
	"net"
	"os"

	"github.com/spf13/cobra"

	"github.com/surehand/surehand/e2e/peers/fake"
)

func main() {
	var o fake.Options
	cmd := &cobra.Command{Use: "fakeengine", Short: "One fake vLLM or SGLang server", Args: cobra.NoArgs, SilenceUsage: true}
	f := cmd.Flags()
	f.StringVar(&o.Name, "name", "P1", "of the engine")
	f.StringVar(&o.Listen, "listen", "127.0.0.1:0", "HTTP address")
	f.StringVar(&o.Side, "side", "", "side channel's address, of a P")
	f.StringVar((*string)(&o.Kind), "kind", string(fake.VLLM), "vllm or sglang")
	f.StringVar(&o.Revision, "revision", "r1", "of the weights")
	f.IntVar(&o.MaxRunning, "max-running", 0, "requests past it are refused with 503; 0: no bound")
	cmd.RunE = func(*cobra.Command, []string) error { return serve(o) }
	if cmd.Execute() != nil {
		os.Exit(1)
	}
}

func serve(o fake.Options) error {
	l, err := listen(o.Listen)
	if err != nil {
		return err
	}
	var side net.Listener
	if o.Side != "" {
		if side, err = listen(o.Side); err != nil {
			return err
		}
	}
	fmt.Printf("{\"ready\":true,\"http\":%q}\n", l.Addr().String())
	return fake.New(o).Serve(l, side)
}

func listen(address string) (net.Listener, error) {
	host, _, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsLoopback() {
		return nil, fmt.Errorf("%q is not a loopback address", address)
	}
	return net.Listen("tcp", address)
}
