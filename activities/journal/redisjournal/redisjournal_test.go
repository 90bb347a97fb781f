package redisjournal

import (
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/surehand/surehand/activities/claimcheck"
	"github.com/surehand/surehand/activities/journal"
	"github.com/surehand/surehand/contracts/handoff"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T) (*Journal, *miniredis.Miniredis) {
	t.Helper()
	store := miniredis.RunT(t)
	c := redis.NewClient(&redis.Options{Addr: store.Addr(), MaxRetries: -1, Protocol: 2, DisableIdentity: true})
	t.Cleanup(func() { c.Close() })
	key, err := claimcheck.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	sealer, err := claimcheck.NewSealer(key)
	if err != nil {
		t.Fatal(err)
	}
	return New(c, sealer), store
}

var (
	name  = journal.Name{Tenant: "blue", ID: "k-1"}
	about = journal.About{Body: handoff.Digest{1}, Model: "tiny", Kind: "text", Created: 7}
)

func word(i int) journal.Record {
	return journal.Record{Epoch: 1, Position: uint32(i), Tokens: 1, Text: "secret"}
}

func (j *Journal) begin(t *testing.T, w journal.Writer) int {
	t.Helper()
	n, err := j.Open(t.Context(), name, w, about, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func (j *Journal) add(t *testing.T, w journal.Writer, index, n int) error {
	t.Helper()
	var records []journal.Record
	for i := range n {
		records = append(records, word(index+i))
	}
	return j.Append(t.Context(), name, w, index, records, time.Hour)
}

func TestWhatWasDeliveredIsReadBackInOrder(t *testing.T) {
	j, store := open(t)
	w := journal.Writer{Run: "k-1.a", Number: 1}
	j.begin(t, w)
	for at := 0; at < 600; at += 200 {
		if err := j.add(t, w, at, 200); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.add(t, w, 590, 20); err != nil { // a repeat that goes further
		t.Fatal(err)
	}
	a, got, err := journal.All(t.Context(), j, name)
	if err != nil || len(got) != 610 || a.Records != 610 || a.Run != w.Run || a.Body != about.Body || a.Kind != "text" {
		t.Fatal(a, len(got), err)
	}
	for i, r := range got {
		if r != word(i) {
			t.Fatalf("record %d is %+v", i, r)
		}
	}
	if strings.Contains(store.Dump(), "secret") {
		t.Error("what clients were answered lies in the store in clear")
	}
}

func TestAJournalHasOneWriter(t *testing.T) {
	j, _ := open(t)
	first, second := journal.Writer{Run: "k-1.a", Number: 1}, journal.Writer{Run: "k-1.a", Number: 2}
	j.begin(t, first)
	if err := j.add(t, first, 0, 3); err != nil {
		t.Fatal(err)
	}
	if n := j.begin(t, second); n != 3 {
		t.Fatalf("the next reader finds %d records", n)
	}
	if err := j.add(t, first, 3, 1); handoff.CodeOf(err) != handoff.CodeStaleIncarnation {
		t.Fatal("the earlier reader still writes: ", err)
	}
	if _, err := j.Open(t.Context(), name, first, about, time.Hour); handoff.CodeOf(err) != handoff.CodeStaleIncarnation {
		t.Fatal(err)
	}
	if err := j.add(t, second, 3, 1); err != nil {
		t.Fatal(err)
	}
	another := journal.Writer{Run: "k-1.b", Number: 1}
	if n := j.begin(t, another); n != 0 {
		t.Fatalf("another run finds %d records of the last", n)
	}
	if err := j.add(t, second, 4, 1); handoff.CodeOf(err) != handoff.CodeStaleIncarnation {
		t.Fatal("a run that is over writes into the next: ", err)
	}
}

func TestAJournalWithAGapTakesNothingMore(t *testing.T) {
	j, store := open(t)
	w := journal.Writer{Run: "k-1.a", Number: 1}
	j.begin(t, w)
	if err := j.add(t, w, 0, 3); err != nil {
		t.Fatal(err)
	}
	if err := j.add(t, w, 5, 1); handoff.CodeOf(err) != handoff.CodeGone {
		t.Fatal("a gap is written: ", err)
	}
	store.Del(keys(name)[1])
	if err := j.add(t, w, 3, 1); handoff.CodeOf(err) != handoff.CodeGone {
		t.Fatal("records were lost and more is written: ", err)
	}
	store.FlushAll()
	if err := j.add(t, w, 3, 1); handoff.CodeOf(err) != handoff.CodeGone {
		t.Fatal(err)
	}
	if _, _, err := journal.All(t.Context(), j, name); handoff.CodeOf(err) != handoff.CodeGone {
		t.Fatal(err)
	}
	if _, err := j.Open(t.Context(), name, journal.Writer{Run: "k-1.a", Number: 2}, about, time.Hour); handoff.CodeOf(err) != handoff.CodeGone {
		t.Fatal("a later reader begins in the middle: ", err)
	}
}

func TestAJournalIsBoundedAndEndsByItself(t *testing.T) {
	j, store := open(t)
	w := journal.Writer{Run: "k-1.a", Number: 1}
	j.begin(t, w)
	big := journal.Record{Text: strings.Repeat("x", journal.MaxBytes)}
	if err := j.Append(t.Context(), name, w, 0, []journal.Record{big}, time.Hour); handoff.CodeOf(err) != handoff.CodeTooLarge {
		t.Fatal(err)
	}
	if err := j.add(t, w, 0, journal.MaxBatch+1); handoff.CodeOf(err) != handoff.CodeInvalid {
		t.Fatal(err)
	}
	if err := j.add(t, w, 0, 1); err != nil {
		t.Fatal(err)
	}
	store.FastForward(time.Hour + time.Second)
	if len(store.Keys()) > 0 {
		t.Fatal("it stays: ", store.Keys())
	}
	store.Close()
	if err := j.add(t, w, 1, 1); handoff.CodeOf(err) != handoff.CodeUnavailable {
		t.Fatal(err)
	}
}
