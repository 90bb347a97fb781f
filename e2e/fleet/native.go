package fleet

import (
	"context"
	"errors"
	"fmt"

	"go.temporal.io/sdk/client"
)

// Gateway is the name of the one gateway of a fleet of native engines.
const Gateway = "g1"

// Native says what a gateway in front of engines that hand over by themselves
// is told.
type Native struct {
	Prefill, Decode []string // URLs
	Args            []string // further flags of serve
	Profiles        bool     // Temporal and the gateway serve Go's CPU profiles
}

// StartNative runs Temporal and one gateway in front of engines that are not of
// this fleet. The gateway is waited for until it could serve, so until a P and a D
// answer it. The caller stops the fleet, also when StartNative fails.
func StartNative(ctx context.Context, p Programs, dir string, n Native) (*Fleet, error) {
	f, err := Bare(p, dir)
	if err != nil {
		return f, err
	}
	f.Options.Profiles = n.Profiles
	if err := f.StartTemporal(ctx); err != nil {
		return f, err
	}
	return f, f.Serve(ctx, n)
}

// StartTemporal runs the embedded server, for a fleet that has none.
func (f *Fleet) StartTemporal(ctx context.Context) error {
	if err := f.startPostgres(ctx); err != nil {
		return err
	}
	t, err := f.temporalSpec()
	if err != nil {
		return err
	}
	if err := startAll(ctx, []*Process{f.add(t)}); err != nil {
		return err
	}
	f.temporal, err = client.DialContext(ctx, client.Options{HostPort: f.TemporalAddress, Logger: quiet{}})
	return err
}

// Serve puts another gateway in the place of the one there is: other engines or
// other flags, the same Temporal.
func (f *Fleet) Serve(ctx context.Context, n Native) error {
	if old := f.byName[Gateway]; old != nil {
		if err := old.Stop(); err != nil {
			return err
		}
	}
	at, err := addresses(2)
	if err != nil {
		return err
	}
	f.HTTP[Gateway], f.GRPC[Gateway] = at[0], at[1]
	args := []string{"serve", "--listen", at[0], "--grpc", at[1], "--temporal", f.TemporalAddress}
	for _, u := range n.Prefill {
		args = append(args, "--prefill", u)
	}
	for _, u := range n.Decode {
		args = append(args, "--decode", u)
	}
	profiles, err := f.profiles(Gateway)
	if err != nil {
		return err
	}
	s := spec{name: Gateway, path: f.programs.Surehand, says: true, answers: ready(at[0]), args: append(append(args, n.Args...), profiles...)}
	if old := f.byName[Gateway]; old != nil {
		old.spec = s
		return old.Start(ctx)
	}
	if err := f.add(s).Start(ctx); err != nil {
		return errors.Join(fmt.Errorf("gateway in front of %v and %v", n.Prefill, n.Decode), err)
	}
	return nil
}
