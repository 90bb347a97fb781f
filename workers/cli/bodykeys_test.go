package cli

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestBodyKeysAreReadNewestFirstAndRefusedByLine(t *testing.T) {
	a, b := strings.Repeat("a", 32), strings.Repeat("b", 32)
	line := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	for _, c := range []struct{ text, refusal string }{
		{line(a) + "\n\n " + line(b) + "\n", ""},
		{line("short") + "\n", "line 1"},
		{line(a) + "\nnot base64!\n", "line 2"},
		{"\n", "no key"},
	} {
		file := filepath.Join(t.TempDir(), "keys")
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		keys, err := keysIn("--body-keys", file)
		switch {
		case c.refusal == "" && (err != nil || len(keys) != 2 || string(keys[0]) != a || string(keys[1]) != b):
			t.Errorf("%q gives %q, %v", c.text, keys, err)
		case c.refusal != "" && (err == nil || !strings.Contains(err.Error(), c.refusal)):
			t.Errorf("%q gives %v, want it to name %q", c.text, err, c.refusal)
		}
	}
	if keys, err := keysIn("--body-keys", ""); keys != nil || err != nil {
		t.Errorf("no file gives %q, %v", keys, err)
	}
}
