package cli

import (
	"encoding/json"
	"io"
)

// sayReady prints the one line on stdout that a supervisor waits for.
func sayReady(out io.Writer, addresses map[string]string) error {
	line := map[string]any{"ready": true}
	for name, address := range addresses {
		line[name] = address
	}
	text, err := json.Marshal(line)
	if err != nil {
		return err
	}
	_, err = out.Write(append(text, '\n'))
	return err
}
