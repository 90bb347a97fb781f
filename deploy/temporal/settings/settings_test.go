package settings

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
)

func TestOnlyLoopbackAddressesAreAccepted(t *testing.T) {
	for text, want := range map[string]string{
		"127.0.0.1:7233": "127.0.0.1:7233",
		"127.9.9.9:0":    "127.9.9.9:0",
		"localhost:1":    "127.0.0.1:1",
		"[::1]:65535":    "[::1]:65535",
		// The same address in its long form, which some listeners misread.
		"[::ffff:127.0.0.1]:80": "127.0.0.1:80",
	} {
		if got, err := Loopback("--listen", text); err != nil || got.String() != want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{
		"0.0.0.0:1", "[::]:1", ":1", "10.0.0.1:1", "192.168.0.1:1", "8.8.8.8:1",
		"localhost.example:1", "host:1", "[::ffff:10.0.0.1]:1", "[::1%eth0]:1",
	} {
		if got, err := Loopback("--listen", text); !errors.Is(err, ErrNotLoopback) {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"127.0.0.1", "127.0.0.1:65536", "127.0.0.1:-1", "127.0.0.1:x"} {
		if got, err := Loopback("--listen", text); err == nil || !strings.Contains(err.Error(), "--listen") {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	if got, err := Loopback("--ui", ""); err != nil || got.IsValid() {
		t.Errorf("empty: %v, %v", got, err)
	}
}

func TestTheDefaultAttributesAreThoseOfAHandoff(t *testing.T) {
	attributes, err := ParseSearchAttributes(DefaultSearchAttributes)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"SurehandDecode", "SurehandEpoch", "SurehandModel", "SurehandOutcome", "SurehandPhase", "SurehandPrefill", "SurehandTenant"}
	if !slices.Equal(attributes.Names(), want) {
		t.Fatal(attributes.Names())
	}
	if attributes["SurehandEpoch"] != enumspb.INDEXED_VALUE_TYPE_INT || attributes["SurehandPhase"] != enumspb.INDEXED_VALUE_TYPE_KEYWORD {
		t.Fatal(attributes)
	}
}

func TestAttributeListsThatCannotBeRegisteredAreRefused(t *testing.T) {
	for _, text := range []string{
		"Name", "Name=", "=Int", "Name=Integer", "Name=Unspecified", "1Name=Int", "Na me=Int", "A=Int,A=Int",
		"A=Int,B=Int,C=Int,D=Int", // three columns
		strings.Repeat("x", 65) + "=Int",
	} {
		if got, err := ParseSearchAttributes(text); err == nil {
			t.Errorf("%s: %v", text, got)
		}
	}
	if got, err := ParseSearchAttributes(" A=Int , ,B=KeywordList,"); err != nil || len(got) != 2 {
		t.Fatalf("%v, %v", got, err)
	}
}

func FuzzAttributeListsAreBounded(f *testing.F) {
	f.Add(DefaultSearchAttributes)
	f.Add("A=Int,,B=KeywordList")
	f.Fuzz(func(t *testing.T, text string) {
		attributes, err := ParseSearchAttributes(text)
		if err != nil {
			return
		}
		used := map[enumspb.IndexedValueType]int{}
		for name, kind := range attributes {
			if used[kind]++; used[kind] > columns[kind] || !attributeName.MatchString(name) {
				t.Fatalf("accepted %q", text)
			}
		}
	})
}

func TestSettingsNoServerShouldStartWithAreRefused(t *testing.T) {
	frontend, err := Loopback("--listen", DefaultListen)
	if err != nil {
		t.Fatal(err)
	}
	good := Settings{DataDir: "d", Frontend: frontend, Namespaces: []string{"default"}, Retention: time.Hour, LogLevel: "warn"}
	if err := good.Check(); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*Settings){
		"no data":           func(s *Settings) { s.DataDir = "" },
		"no frontend":       func(s *Settings) { s.Frontend, _ = Loopback("", "") },
		"no namespace":      func(s *Settings) { s.Namespaces = nil },
		"empty namespace":   func(s *Settings) { s.Namespaces = []string{""} },
		"system namespace":  func(s *Settings) { s.Namespaces = []string{"temporal-system"} },
		"short retention":   func(s *Settings) { s.Retention = time.Minute },
		"unknown log level": func(s *Settings) { s.LogLevel = "loud" },
	} {
		bad := good
		spoil(&bad)
		if bad.Check() == nil {
			t.Error(name)
		}
	}
}
