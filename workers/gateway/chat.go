package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// roles that a message may have.
var roles = []string{"system", "developer", "user", "assistant"}

// render makes the prompt of a chat. The reference engine is a language model
// over bytes without a chat template of its own, so the rule is simple: one
// user message is the prompt as it is; a longer conversation is a line
// "role: content" for each message and "assistant:" for the turn to come.
func render(messages []message) string {
	if len(messages) == 1 && messages[0].Role == "user" {
		return messages[0].Content
	}
	var b strings.Builder
	for _, m := range messages {
		b.WriteString(m.Role)
		b.WriteString(": ")
		b.WriteString(m.Content)
		b.WriteByte('\n')
	}
	b.WriteString("assistant:")
	return b.String()
}

// parseMessages reads the messages of a chat; only text is supported.
func parseMessages(text json.RawMessage) ([]message, error) {
	var raw []map[string]json.RawMessage
	if err := json.Unmarshal(text, &raw); err != nil {
		return nil, refuse("messages", "messages must be an array of objects")
	}
	if len(raw) > MaxMessages {
		return nil, refuse("messages", "%d messages, the limit is %d", len(raw), MaxMessages)
	}
	messages := make([]message, len(raw))
	for i, fields := range raw {
		at := fmt.Sprintf("messages[%d]", i)
		for name, value := range fields {
			if isNull(value) {
				continue
			}
			switch name {
			case "role", "content", "name", "refusal", "annotations": // read below, or without meaning here
			default:
				return nil, refuse(at+"."+name, "%s is not supported", name)
			}
		}
		var err error
		if messages[i], err = parseMessage(at, fields); err != nil {
			return nil, err
		}
	}
	return messages, nil
}

func parseMessage(at string, fields map[string]json.RawMessage) (m message, err error) {
	if err := json.Unmarshal(fields["role"], &m.Role); err != nil {
		return m, refuse(at+".role", "a message needs a role")
	}
	if !slices.Contains(roles, m.Role) {
		return m, refuse(at+".role", "the role is none of %v", roles)
	}
	m.Content, err = parseContent(at+".content", fields["content"])
	return m, err
}

// parseContent takes a string, or parts of type text.
func parseContent(at string, text json.RawMessage) (string, error) {
	var whole string
	if !isNull(text) && json.Unmarshal(text, &whole) == nil {
		return whole, nil
	}
	var parts []struct {
		Type string  `json:"type"`
		Text *string `json:"text"`
	}
	if isNull(text) || json.Unmarshal(text, &parts) != nil || len(parts) == 0 {
		return "", refuse(at, "content must be a string or an array of text parts")
	}
	var b strings.Builder
	for i, p := range parts {
		if p.Type != "text" || p.Text == nil {
			return "", refuse(fmt.Sprintf("%s[%d]", at, i), "only parts of type text are supported")
		}
		b.WriteString(*p.Text)
	}
	return b.String(), nil
}

// isNull says whether a field is absent or null, which mean the same.
func isNull(text json.RawMessage) bool {
	return len(text) == 0 || bytes.Equal(text, []byte("null"))
}
