package fleet

import (
	"context"
	"fmt"
)

// AddGateway runs one more gateway with further flags, named so, and waits until
// it is ready. It is started again by Heal and ended by Stop as the others are.
func (f *Fleet) AddGateway(ctx context.Context, name string, args ...string) error {
	if f.byName[name] != nil {
		return fmt.Errorf("there is a %s already", name)
	}
	s, err := f.gatewaySpec(name)
	if err != nil {
		return err
	}
	s.args = append(s.args, args...)
	return f.add(s).Start(ctx)
}

// AddWorker runs a Temporal worker without a gateway.
func (f *Fleet) AddWorker(ctx context.Context, name string, args ...string) error {
	if f.byName[name] != nil {
		return fmt.Errorf("there is a %s already", name)
	}
	at, err := address()
	if err != nil {
		return err
	}
	s := spec{name: name, path: f.programs.Surehand, says: true, listens: []string{at}, answers: ready(at), args: append([]string{"worker", "--temporal", f.TemporalAddress,
		"--redis", f.RedisURL, "--metrics", at}, append(f.Options.gatewayArgs(), args...)...)}
	return f.add(s).Start(ctx)
}
