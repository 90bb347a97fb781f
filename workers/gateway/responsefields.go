package gateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// responseFields is every field that a response's body may have.
var responseFields = map[string]field{
	"model":             fields["model"],
	"temperature":       fields["temperature"],
	"top_p":             fields["top_p"],
	"user":              fields["user"],
	"input":             {"", readInput},
	"instructions":      {"", func(a *ask, v json.RawMessage) error { return text(v, &a.instructions) }},
	"max_output_tokens": {"", readMaxTokens},
	"background":        {"", func(a *ask, v json.RawMessage) error { return boolean(v, &a.background) }},
	"stream":            {"", func(a *ask, v json.RawMessage) error { return boolean(v, &a.stream) }},
	"stream_options":    {"", ignored}, // of a padding that we do not add
	"store":             {"", ignored}, // what is kept, and how long, is said by background and by the journal

	"previous_response_id": {"", neutral()},
	"conversation":         {"", neutral()},
	"prompt":               {"", neutral()},
	"reasoning":            {"", neutral("{}")},
	"include":              {"", neutral("[]")},
	"tools":                {"", neutral("[]")},
	"tool_choice":          {"", neutral(`"none"`, `"auto"`)},
	"truncation":           {"", neutral(`"disabled"`)},
	"text":                 {"", neutral("{}", `{"format":{"type":"text"}}`)},
	"top_logprobs":         {"", neutral("0")},
	"metadata":             {"", ignored},
	"service_tier":         {"", ignored},
	"safety_identifier":    {"", ignored},
	"prompt_cache_key":     {"", ignored},
	"parallel_tool_calls":  {"", ignored}, // there are no tools
}

func fieldsOf(kind string) map[string]field {
	if kind == kindResponse {
		return responseFields
	}
	return fields
}

// readInput takes a string, or messages of text.
func readInput(a *ask, v json.RawMessage) error {
	var whole string
	if json.Unmarshal(v, &whole) == nil {
		if whole != "" {
			a.messages = []message{{"user", whole}}
		}
		return nil
	}
	var items []struct {
		Type    string          `json:"type"`
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
	}
	if json.Unmarshal(v, &items) != nil || len(items) > MaxMessages {
		return fmt.Errorf("must be a string or an array of at most %d messages", MaxMessages)
	}
	for i, item := range items {
		if item.Type != "" && item.Type != "message" || !slices.Contains(roles, item.Role) {
			return refuse(fmt.Sprintf("input[%d]", i), "only messages are supported, with a role of %v", roles)
		}
		content, err := inputText(item.Content)
		if err != nil {
			return refuse(fmt.Sprintf("input[%d].content", i), "%s", err)
		}
		a.messages = append(a.messages, message{item.Role, content})
	}
	return nil
}

func inputText(v json.RawMessage) (string, error) {
	var whole string
	if !isNull(v) && json.Unmarshal(v, &whole) == nil {
		return whole, nil
	}
	var parts []struct {
		Type string  `json:"type"`
		Text *string `json:"text"`
	}
	if isNull(v) || json.Unmarshal(v, &parts) != nil || len(parts) == 0 {
		return "", errors.New("must be a string or an array of text parts")
	}
	for _, p := range parts {
		if p.Type != "input_text" && p.Type != "output_text" || p.Text == nil {
			return "", errors.New("only parts of type input_text and output_text are supported")
		}
		whole += *p.Text
	}
	return whole, nil
}

// instruct puts the instructions before the messages, once all is read.
func (a *ask) instruct() {
	if a.kind == kindResponse && a.instructions != "" {
		a.messages = append([]message{{"system", a.instructions}}, a.messages...)
	}
	a.journal = a.journal || a.background
}
