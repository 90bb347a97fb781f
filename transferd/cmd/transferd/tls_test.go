package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/transferd/client"
	"github.com/surehand/surehand/transferd/identity"
	"github.com/surehand/surehand/transferd/identity/authority"
)

const domain = "kv.example"

func leaf(t *testing.T, role identity.Role, name string) authority.Leaf {
	t.Helper()
	u, err := identity.URI(domain, role, name)
	check(t, err)
	return authority.Leaf{URIs: []string{u.String()}}
}

// secured starts a daemon with mutual TLS on both sides, and dials its control
// side as an orchestrator.
func secured(t *testing.T, a *authority.Authority, node string) (*process, identity.Files) {
	t.Helper()
	f, err := a.Write(t.TempDir(), node, leaf(t, identity.Daemon, node))
	check(t, err)
	p := start(t, node, t.TempDir(), "127.0.0.1:0", "--control", "127.0.0.1:0", "--tls-cert", f.Cert, "--tls-key", f.Key, "--tls-ca", f.CA, "--trust-domain", domain)
	check(t, p.control.Close())
	p.control = caller(t, a, p, identity.Orchestrator, "w1")
	return p, f
}

// caller dials a control side with a certificate of its own.
func caller(t *testing.T, a *authority.Authority, p *process, role identity.Role, name string) *client.Control {
	t.Helper()
	f, err := a.Write(t.TempDir(), name, leaf(t, role, name))
	check(t, err)
	f.TrustDomain = domain
	s, err := identity.Open(f)
	check(t, err)
	cfg := s.TLS(identity.Daemon)
	cfg.ServerName = p.node
	c, err := client.Dial(p.Control, client.WithTLS(cfg))
	check(t, err)
	t.Cleanup(func() { _ = c.Close() }) // closed already, where the test did
	return c
}

// Two daemons in processes of their own, with SPIFFE ids: bytes move, and go on
// moving while certificate and authority of both are replaced; what the old
// authority signed is refused afterwards, without a restart.
func TestHandoffsGoOnWhileCertificatesAndTheAuthorityRotate(t *testing.T) {
	before, after := authorities(t)
	ph, pf := secured(t, before, "tp")
	dh, df := secured(t, before, "td")
	p, d := attach(t, ph, "p1"), attach(t, dh, "d1")
	move := func(name handoff.HandoffID) error {
		m := prepare(t, ph, p, d, name)
		_, err := dh.control.Pull(background(t), m.spec, nil)
		if err == nil {
			_, err = m.commit(t, dh)
		}
		check(t, d.FinishTarget(background(t), m.plan.Attempt))
		d.await(t, client.TargetDrained)
		check(t, d.Freed(background(t), m.plan.Attempt, false))
		return err
	}
	check(t, move("h-1"))
	both := append(append([]byte{}, before.PEM...), after.PEM...)
	for node, f := range map[string]identity.Files{"tp": pf, "td": df} {
		check(t, authority.Replace(f.CA, both))
		cert, key, err := after.Issue(leaf(t, identity.Daemon, node))
		check(t, err)
		check(t, authority.Replace(f.Cert, cert))
		check(t, authority.Replace(f.Key, key))
	}
	check(t, move("h-2"))
	for _, f := range []identity.Files{pf, df} {
		check(t, authority.Replace(f.CA, after.PEM))
	}
	if _, err := caller(t, before, dh, identity.Orchestrator, "w2").Describe(background(t), false); handoff.CodeOf(err) != handoff.CodeUnavailable {
		t.Fatal(err)
	}
	check(t, dh.control.Close())
	dh.control = caller(t, after, dh, identity.Orchestrator, "w3")
	check(t, move("h-3"))
}

func authorities(t *testing.T) (a, b *authority.Authority) {
	t.Helper()
	a, err := authority.New()
	check(t, err)
	b, err = authority.New()
	check(t, err)
	return a, b
}

// A daemon's own certificate opens no control side, nor does nobody's.
func TestTheControlSideRefusesDaemonsAndPlaintext(t *testing.T) {
	a, _ := authorities(t)
	p, _ := secured(t, a, "tp")
	_, err := p.control.Describe(background(t), false)
	check(t, err)
	if _, err := caller(t, a, p, identity.Daemon, "td").Describe(background(t), false); handoff.CodeOf(err) != handoff.CodeUnavailable {
		t.Fatal(err)
	}
	plain, err := client.Dial(p.Control)
	check(t, err)
	defer func() { check(t, plain.Close()) }()
	if _, err := plain.Describe(background(t), false); handoff.CodeOf(err) != handoff.CodeUnavailable {
		t.Fatal(err)
	}
}

func TestADaemonThatItsCertificateDoesNotNameDoesNotStart(t *testing.T) {
	a, _ := authorities(t)
	f, err := a.Write(t.TempDir(), "tq", leaf(t, identity.Daemon, "tq"))
	check(t, err)
	for want, args := range map[string][]string{
		"names tq, wanted is tp": {"--tls-cert", f.Cert, "--tls-key", f.Key, "--tls-ca", f.CA, "--trust-domain", domain},
		"go together":            {"--tls-cert", f.Cert, "--tls-key", f.Key},
		"needs them":             {"--trust-domain", domain},
	} {
		cmd := exec.Command(os.Args[0], append([]string{"--node", "tp", "--data", t.TempDir(), "--peer", "127.0.0.1:0"}, args...)...)
		cmd.Env = append(os.Environ(), roleVariable+"=daemon")
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v: %s", want, err, out)
		}
	}
}
