package cli

import (
	"encoding/base64"
	"fmt"
	"os"
	"strings"
)

// bodyKeyBytes is the length of a sealing key (AES-256).
const bodyKeyBytes = 32

// keysIn reads the keys of a flag's file that seal what lies elsewhere; none for
// no file. All are tried for opening, so a key is rotated by a new first line.
func keysIn(flag, file string) ([][]byte, error) {
	if file == "" {
		return nil, nil
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	var keys [][]byte
	for i, line := range strings.Split(string(raw), "\n") {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		key, err := base64.StdEncoding.DecodeString(line)
		if err != nil || len(key) != bodyKeyBytes {
			return nil, fmt.Errorf("%s %s line %d: want %d bytes in base64", flag, file, i+1, bodyKeyBytes)
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("%s %s: no key in it", flag, file)
	}
	return keys, nil
}
