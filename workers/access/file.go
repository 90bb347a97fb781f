package access

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/surehand/surehand/contracts/handoff"
)

// Limits of a file (S17).
const (
	maxFileBytes  = 4 << 20
	maxIdentities = 1 << 16
	maxSaltBytes  = 120 // and its prefix: an engine takes 128
	maxClaimBytes = 64
)

const digestPrefix = "sha256:"

// identity is by what one caller is known.
type identity struct {
	Keys         []string `yaml:"keys"`
	Certificates []string `yaml:"certificates"` // a URI, DNS name or common name of them
}

// tenant is one tenant of the file.
type tenant struct {
	identity `yaml:",inline"`
	Salt     string `yaml:"salt"`
	Limits   `yaml:",inline"`
}

// file is the file as it is written.
type file struct {
	Anonymous string              `yaml:"anonymous"`
	Tenants   map[string]tenant   `yaml:"tenants"`
	Operators map[string]identity `yaml:"operators"`
	Fleet     identity            `yaml:"fleet"`
	Tokens    []issuer            `yaml:"tokens"`
}

// table is a file that was checked, ready to be looked up in.
type table struct {
	anonymous *Caller
	tenants   map[string]Caller
	keys      map[[sha256.Size]byte]Caller
	peers     map[string]Caller
	issuers   []*verifier
	fleet     bool // somebody is of the fleet
}

// readFile parses and checks a file. No refusal quotes a key.
func readFile(path string) (*table, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("access: %w", err)
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("access: %w", err)
	}
	t, err := parse(raw)
	if err != nil {
		return nil, fmt.Errorf("access: %s: %w", path, err)
	}
	return t, nil
}

func parse(raw []byte) (*table, error) {
	if len(raw) > maxFileBytes {
		return nil, handoff.Errorf(handoff.CodeTooLarge, "the file has more than %d bytes", maxFileBytes)
	}
	var f file
	d := yaml.NewDecoder(bytes.NewReader(raw))
	d.KnownFields(true)
	if err := d.Decode(&f); err != nil { // the parser's text may quote a key
		return nil, handoff.Errorf(handoff.CodeInvalid, "it is not YAML of anonymous, tenants, operators, fleet and tokens, or a field of it is not known")
	}
	return f.table()
}

func (f file) table() (*table, error) {
	t := &table{tenants: map[string]Caller{}, keys: map[[sha256.Size]byte]Caller{}, peers: map[string]Caller{}}
	for name, its := range f.Tenants {
		c, err := its.caller(name)
		if err != nil {
			return nil, err
		}
		t.tenants[name] = c
		if err := t.add(its.identity, c); err != nil {
			return nil, err
		}
	}
	for name, its := range f.Operators {
		if err := handoff.ValidateID("operator", name); err != nil {
			return nil, err
		}
		if err := t.add(its, Caller{Role: RoleOperator, Name: name}); err != nil {
			return nil, err
		}
	}
	if err := t.add(f.Fleet, Caller{Role: RoleFleet, Name: RoleFleet.String()}); err != nil {
		return nil, err
	}
	t.fleet = len(f.Fleet.Keys)+len(f.Fleet.Certificates) > 0
	if f.Anonymous != "" {
		c, known := t.tenants[f.Anonymous]
		if !known {
			return nil, handoff.Errorf(handoff.CodeInvalid, "anonymous callers belong to %q, which is no tenant of the file", f.Anonymous)
		}
		t.anonymous = &c
	}
	for _, i := range f.Tokens {
		v, err := i.verifier()
		if err != nil {
			return nil, err
		}
		t.issuers = append(t.issuers, v)
	}
	if len(t.keys)+len(t.peers)+len(t.issuers) == 0 && t.anonymous == nil {
		return nil, handoff.Errorf(handoff.CodeInvalid, "it lets nobody in")
	}
	return t, nil
}

func (t tenant) caller(name string) (Caller, error) {
	if err := handoff.ValidateID("tenant", name); err != nil {
		return Caller{}, err
	}
	l := t.Limits
	switch {
	case l.RequestsPerSecond < 0 || l.Burst < 0 || l.TokensInFlight < 0 || l.MaxPromptBytes < 0:
		return Caller{}, handoff.Errorf(handoff.CodeInvalid, "a limit of tenant %s is negative", name)
	case len(t.Salt) > maxSaltBytes:
		return Caller{}, handoff.Errorf(handoff.CodeTooLarge, "the salt of tenant %s has %d bytes, limit %d", name, len(t.Salt), maxSaltBytes)
	}
	if l.RequestsPerSecond > 0 && l.Burst == 0 {
		l.Burst = max(1, int(l.RequestsPerSecond))
	}
	return Caller{Role: RoleTenant, Name: name, Tenant: name, Salt: salt(name, t.Salt), Limits: l}, nil
}

// salt keeps a chosen salt and a name apart: nobody can choose another's name.
func salt(name, chosen string) string {
	if chosen != "" {
		return "salt:" + chosen
	}
	return "tenant:" + name
}

// add makes what the identity is known by lead to its caller, and to no other.
func (t *table) add(i identity, c Caller) error {
	for n, text := range i.Keys {
		raw, err := hex.DecodeString(strings.TrimPrefix(text, digestPrefix))
		if err != nil || !strings.HasPrefix(text, digestPrefix) || len(raw) != sha256.Size {
			return handoff.Errorf(handoff.CodeInvalid, "key %d of %s is not %s and %d hex digits: write its digest, as `surehand key` prints it", n+1, c.Name, digestPrefix, 2*sha256.Size)
		}
		k := [sha256.Size]byte(raw)
		if other, taken := t.keys[k]; taken {
			return handoff.Errorf(handoff.CodeInvalid, "key %d of %s is also a key of %s", n+1, c.Name, other.Name)
		}
		t.keys[k] = c
	}
	for _, name := range i.Certificates {
		if other, taken := t.peers[name]; taken || name == "" {
			return handoff.Errorf(handoff.CodeInvalid, "certificate name %q of %s is empty or also one of %s", name, c.Name, other.Name)
		}
		t.peers[name] = c
	}
	if len(t.keys)+len(t.peers) > maxIdentities {
		return handoff.Errorf(handoff.CodeTooLarge, "it names more than %d identities", maxIdentities)
	}
	return nil
}
