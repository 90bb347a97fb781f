package redisledger

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/surehand/surehand/contracts/handoff"
)

// call is one script with its keys and arguments.
type call struct {
	script *redis.Script
	keys   []string
	args   []any
}

// reply is what every script returns: {code, detail, values…}.
type reply struct {
	values []string
}

// call runs one script. The error is the script's typed refusal, or
// CodeUnavailable: not done, done, or to be done later, nobody knows. The
// values of a refusal are kept: ClaimAndReserve answers both.
func (l *Ledger) call(ctx context.Context, c call) (reply, error) {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	return parse(c.script.Run(ctx, l.client, c.keys, c.args...))
}

// calls runs scripts in one pipeline, each by itself: one's error is not
// another's.
func (l *Ledger) calls(ctx context.Context, cs []call) ([]reply, []error) {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	p := l.client.Pipeline()
	cmds := make([]*redis.Cmd, len(cs))
	for i, c := range cs {
		cmds[i] = c.script.EvalSha(ctx, p, c.keys, c.args...)
	}
	// The pipeline's own error is the first command's, which parse sees.
	_, _ = p.Exec(ctx)
	replies, errs := make([]reply, len(cs)), make([]error, len(cs))
	for i, cmd := range cmds {
		if unknownScript(cmd.Err()) {
			cmd = cs[i].script.Eval(ctx, l.client, cs[i].keys, cs[i].args...)
		}
		replies[i], errs[i] = parse(cmd)
	}
	return replies, errs
}

func unknownScript(err error) bool {
	return err != nil && (errors.Is(err, redis.ErrNoScript) || strings.HasPrefix(err.Error(), "NOSCRIPT"))
}

func parse(cmd *redis.Cmd) (reply, error) {
	list, err := cmd.StringSlice()
	if err != nil {
		return reply{}, unknown(err)
	}
	if len(list) < 2 {
		return reply{}, malformed(reply{list})
	}
	r := reply{list[2:]}
	if code := handoff.ParseCode(list[0]); code != handoff.CodeNone {
		return r, handoff.Errorf(code, "%s", list[1])
	}
	return r, nil
}

// unknown is an answer that did not come, or came from a server that cannot
// serve now (loading, failing over, full, refusing us): rule 23. The detail is
// the driver's text, which holds no argument of ours.
func unknown(err error) error {
	return handoff.Errorf(handoff.CodeUnavailable, "redis: %v", err)
}

func malformed(r reply) error {
	return handoff.Errorf(handoff.CodeInternal, "redis script answered %d values", len(r.values))
}

// ms is a duration as scripts take it, never rounded to nothing.
func ms(d time.Duration) int64 { return max(1, d.Milliseconds()) }
