package daemon_test

import (
	"bytes"
	"testing"

	"github.com/surehand/surehand/contracts/handoff"
	"github.com/surehand/surehand/transferd/client"
)

// Rows of the museum about what becomes of a source while it is read.

// vllm-project/vllm#52234: P gives granted blocks to another request between
// D's first read and the commit, whether it says so or not: never a commit.
func TestASourceThatIsReusedBeforeTheCommitIsNeverCommitted(t *testing.T) {
	ph, p, dh, d := pair(t)
	reused := bytes.Repeat([]byte{0x77}, blockBytes)
	begin := func() (*move, <-chan error) { // half of it landed
		m := newMove(t, ph, p, dh, d)
		m.open()
		m.announce(0, 1, 2)
		pulled := m.async()
		eventually(t, "three pieces landed", func() bool {
			return bytes.Equal(m.source(0), m.target(0)) && bytes.Equal(m.source(1), m.target(1)) && bytes.Equal(m.source(2), m.target(2))
		})
		return m, pulled
	}
	end := func(m *move, pulled <-chan error, want handoff.Code) {
		wantCode(t, <-pulled, want)
		_, err := m.commit()
		wantCode(t, err, handoff.CodeClosed)
		m.neverVisible()
	}
	m, pulled := begin()
	check(t, p.CloseSource(background(t), m.plan.Attempt, handoff.CodeClosed))
	p.await(t, client.SourceDrained, m.plan.Attempt)
	check(t, p.Freed(background(t), m.plan.Attempt, true))
	copy(m.source(0), reused)
	wantCode(t, m.seal(), handoff.CodeClosed)
	end(m, pulled, handoff.CodeClosed)

	m, pulled = begin() // an engine that says nothing
	var rest, digests []uint32
	for i := uint32(3); i < shape.Pieces(); i++ {
		rest, digests = append(rest, i), append(digests, client.Checksum(m.source(i)))
		copy(m.source(i), reused)
	}
	check(t, p.Announce(background(t), m.plan.Attempt, rest, digests))
	check(t, m.seal())
	end(m, pulled, handoff.CodeIntegrity)
}

// vllm-project/vllm#53095: D's daemon renews the grant's lease from the moment
// the pull begins; a prefill that takes many leases loses nothing.
func TestAWaitOfManyLeasesKeepsTheGrant(t *testing.T) {
	t.Parallel()
	m := newPair(t, lease(shortLease))
	m.open()
	check(t, m.renewTarget())
	pulled := m.async()
	eventuallyAfter(t, 2*shortLease) // with nothing announced
	m.announce(all()...)
	check(t, m.seal())
	check(t, <-pulled)
	_, err := m.commit()
	check(t, err)
	if !m.isEqual() {
		t.Fatal("bytes differ")
	}
}

// sgl-project/sglang#17259, #22716: what belongs to one handoff alone (its
// sampler's state, its first token) travels in its own sealed manifest: handoffs at
// the same time never get each other's.
func TestEachHandoffGetsItsOwnStateItems(t *testing.T) {
	ph, p, dh, d := pair(t)
	item := shape.Pieces() - 1
	var moves []*move
	for range 6 { // made before any is opened: each fills its source
		moves = append(moves, newMove(t, ph, p, dh, d))
	}
	for k, m := range moves {
		for i := range m.from { // places of its own
			m.from[i] = uint64(k*len(m.from)+i) * blockBytes
			m.to[i] = m.from[i]
		}
		copy(m.source(item), bytes.Repeat([]byte{byte(k + 1)}, itemBytes))
		m.ready()
	}
	var pulls []<-chan error
	for _, m := range moves {
		pulls = append(pulls, m.async())
	}
	for k, m := range moves {
		check(t, <-pulls[k])
		_, err := m.commit()
		check(t, err)
		if !bytes.Equal(m.target(item), bytes.Repeat([]byte{byte(k + 1)}, itemBytes)) {
			t.Fatalf("handoff %d got another's item", k)
		}
	}
}

// sgl-project/sglang#28651, #36108, vllm-project/vllm#50754: P's failure is told
// to D by name, not found by a deadline.
func TestAFailedSourceIsToldNotWaitedFor(t *testing.T) {
	ph, p, dh, d := pair(t)
	for name, fail := range map[string]func(m *move){
		"before a byte is announced": func(m *move) {},
		"in the middle":              func(m *move) { m.announce(0, 1, 2) },
		"all but the seal":           func(m *move) { m.announce(all()...) },
	} {
		t.Run(name, func(t *testing.T) {
			m := newMove(t, ph, p, dh, d)
			m.open()
			fail(m)
			spec := m.spec()
			spec.ProgressDeadline = 100 * patience // of no use here: whoever waits for it fails the test
			pulled := make(chan error, 1)
			go func() {
				_, err := dh.control.Pull(background(t), spec, nil)
				pulled <- err
			}()
			eventually(t, "the pull is there", func() bool { return dh.Pulling() > 0 })
			check(t, p.CloseSource(background(t), m.plan.Attempt, handoff.CodeEngine))
			wantCode(t, <-pulled, handoff.CodeEngine)
			m.d.await(t, client.TargetDrained, m.plan.Attempt)
			m.neverVisible()
		})
	}
}
