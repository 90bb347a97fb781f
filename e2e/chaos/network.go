package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
)

// Faults of the wire: rules on the input hook of the fleet's own network
// namespace. A rule on the output hook would give the sender an error, which a
// partition does not.
func init() {
	register(Fault{Name: "deaf", About: "what is sent to the process is lost; what it sends arrives", Victims: []string{"*"}, Available: walled, Expect: unreachable,
		Inject: onPorts(func(port uint16) []rule { return []rule{{to: port}} })})
	register(Fault{Name: "mute", About: "what the process answers is lost; what it is sent arrives", Victims: []string{"*"}, Available: walled, Expect: unreachable,
		Inject: onPorts(func(port uint16) []rule { return []rule{{from: port}} })})
	register(Fault{Name: "cut", About: "nothing reaches the process, nor comes from it", Victims: []string{"*"}, Available: walled, Expect: unreachable,
		Inject: onPorts(func(port uint16) []rule { return []rule{{to: port}, {from: port}} })})
	register(Fault{Name: "reset", About: "every connection to the process is reset, as by a firewall that was restarted", Victims: []string{"*"}, Available: walled, Expect: unreachable,
		Inject: onPorts(func(port uint16) []rule { return []rule{{to: port, reset: true}} })})
	register(Fault{Name: "lossy", About: "one of ten packets to and from the process is lost", Victims: []string{"*"}, Available: walled, Expect: unreachable,
		Inject: onPorts(func(port uint16) []rule { return []rule{{to: port, percent: 10}, {from: port, percent: 10}} })})
	register(Fault{Name: "narrow", About: "the whole host's loopback carries 4 Mbit/s", Victims: []string{"host"}, Available: narrows,
		Expect: map[string]Expected{"*": "EEEEEELW"}, Inject: narrow})
}

// unreachable is what a silent wire asks for: a process that is cut off is not
// dead, so what it may still do has to be proved closed.
var unreachable = map[string]Expected{"g1": gone, "*": "EEEEEELW"}

// walled is nil where the fleet has a network namespace of its own.
func walled(s *Stage) error {
	if s.Wall == nil {
		return errors.New("needs a network namespace of its own: run as root")
	}
	return nil
}

func onPorts(rules func(port uint16) []rule) func(context.Context, *Stage, string) (Heal, error) {
	return func(_ context.Context, s *Stage, v string) (Heal, error) {
		var all []rule
		for _, address := range s.Process(v).Listens() {
			port, err := portOf(address)
			if err != nil {
				return nil, err
			}
			all = append(all, rules(port)...)
		}
		if len(all) == 0 {
			return nil, fmt.Errorf("%s listens nowhere", v)
		}
		return func(context.Context) error { return s.Wall.open() }, s.Wall.put(all)
	}
}

// narrows is nil where tc can shape the namespace's loopback.
func narrows(s *Stage) error {
	if err := walled(s); err != nil {
		return err
	}
	if _, err := exec.LookPath("tc"); err != nil {
		return errors.New("needs tc (Debian's iproute2)")
	}
	return nil
}

func narrow(ctx context.Context, _ *Stage, _ string) (Heal, error) {
	heal := func(ctx context.Context) error { return tc(ctx, "qdisc", "del", "dev", "lo", "root") }
	return heal, tc(ctx, "qdisc", "add", "dev", "lo", "root", "tbf", "rate", "4mbit", "burst", "128kb", "latency", "400ms")
}

func tc(ctx context.Context, args ...string) error {
	c := exec.CommandContext(context.WithoutCancel(ctx), "tc", args...)
	c.Env = os.Environ()
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("tc %v: %w: %s", args, err, out)
	}
	return nil
}
