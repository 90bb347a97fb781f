package gateway

import (
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
)

// field reads one field of a body. An error's text follows the field's name.
type field struct {
	only string // kindText or kindChat; empty: both
	read func(a *ask, value json.RawMessage) error
}

// fields is every field that a body may have. Those that would change the
// answer and are not supported are accepted with their neutral value only.
var fields = map[string]field{
	"model":  {"", func(a *ask, v json.RawMessage) error { return text(v, &a.model) }},
	"stream": {"", func(a *ask, v json.RawMessage) error { return boolean(v, &a.stream) }},

	"prompt":   {kindText, readPrompt},
	"messages": {kindChat, func(a *ask, v json.RawMessage) (err error) { a.messages, err = parseMessages(v); return err }},

	"max_tokens":            {"", readMaxTokens},
	"max_completion_tokens": {"", readMaxTokens},
	"temperature":           {"", func(a *ask, v json.RawMessage) error { return number(v, &a.temperature) }},
	"top_p":                 {"", func(a *ask, v json.RawMessage) error { return number(v, &a.topP) }},
	"seed":                  {"", readSeed},
	"stop":                  {"", readStop},
	"stream_options":        {"", readStreamOptions},

	"n":                  {"", neutral("1")},
	"best_of":            {kindText, neutral("1")},
	"echo":               {kindText, neutral("false")},
	"suffix":             {kindText, neutral(`""`)},
	"logprobs":           {"", neutral("false")},
	"top_logprobs":       {kindChat, neutral("0")},
	"logit_bias":         {"", neutral("{}")},
	"presence_penalty":   {"", neutral("0", "0.0")},
	"frequency_penalty":  {"", neutral("0", "0.0")},
	"tools":              {kindChat, neutral("[]")},
	"tool_choice":        {kindChat, neutral(`"none"`, `"auto"`)},
	"functions":          {kindChat, neutral("[]")},
	"function_call":      {kindChat, neutral(`"none"`, `"auto"`)},
	"response_format":    {kindChat, neutral(`{"type":"text"}`)},
	"modalities":         {kindChat, neutral(`["text"]`)},
	"audio":              {kindChat, neutral()},
	"prediction":         {kindChat, neutral()},
	"reasoning_effort":   {kindChat, neutral()},
	"verbosity":          {kindChat, neutral()},
	"web_search_options": {kindChat, neutral()},

	// Without meaning for the answer here.
	"user":                   {"", ignored},
	"metadata":               {kindChat, ignored},
	"store":                  {kindChat, neutral("false")},
	"service_tier":           {kindChat, ignored},
	"safety_identifier":      {kindChat, ignored},
	"prompt_cache_key":       {kindChat, ignored},
	"prompt_cache_retention": {kindChat, ignored},
	"parallel_tool_calls":    {kindChat, ignored}, // there are no tools
}

// neutral accepts only values that change nothing.
func neutral(values ...string) func(*ask, json.RawMessage) error {
	return func(_ *ask, v json.RawMessage) error {
		if slices.Contains(values, compact(v)) {
			return nil
		}
		if len(values) == 0 {
			return errors.New("is not supported")
		}
		return errors.New("is not supported, other than " + strings.Join(values, " or "))
	}
}

func ignored(*ask, json.RawMessage) error { return nil }

// compact takes the white space between tokens out; neutral values hold none.
func compact(v json.RawMessage) string {
	return strings.NewReplacer(" ", "", "\n", "", "\t", "", "\r", "").Replace(string(v))
}

func text(v json.RawMessage, to *string) error {
	if json.Unmarshal(v, to) != nil {
		return errors.New("must be a string")
	}
	return nil
}

func boolean(v json.RawMessage, to *bool) error {
	if json.Unmarshal(v, to) != nil {
		return errors.New("must be true or false")
	}
	return nil
}

func number(v json.RawMessage, to *float64) error {
	if json.Unmarshal(v, to) != nil {
		return errors.New("must be a number")
	}
	return nil
}

func readPrompt(a *ask, v json.RawMessage) error {
	if json.Unmarshal(v, &a.prompt) == nil {
		return nil
	}
	var several []string
	if json.Unmarshal(v, &several) != nil || len(several) != 1 {
		return errors.New("must be one string; token ids and several prompts are not supported")
	}
	a.prompt = several[0]
	return nil
}

func readMaxTokens(a *ask, v json.RawMessage) error {
	n, err := strconv.ParseUint(string(v), 10, 32)
	if err != nil || n == 0 {
		return errors.New("must be a whole number of at least 1")
	}
	if a.maxTokens != 0 && uint64(a.maxTokens) != n {
		return errors.New("max_tokens and max_completion_tokens differ")
	}
	a.maxTokens = uint32(n)
	return nil
}

func readSeed(a *ask, v json.RawMessage) error {
	if n, err := strconv.ParseInt(string(v), 10, 64); err == nil {
		seed := uint64(n)
		a.seed = &seed
		return nil
	}
	seed, err := strconv.ParseUint(string(v), 10, 64)
	if err != nil {
		return errors.New("must be a whole number of 64 bits")
	}
	a.seed = &seed
	return nil
}

func readStop(a *ask, v json.RawMessage) error {
	var one string
	if json.Unmarshal(v, &one) == nil {
		a.stop = []string{one}
		return nil
	}
	if json.Unmarshal(v, &a.stop) != nil {
		return errors.New("must be a string or an array of strings")
	}
	return nil
}

func readStreamOptions(a *ask, v json.RawMessage) error {
	var options map[string]json.RawMessage
	if json.Unmarshal(v, &options) != nil {
		return errors.New("must be an object")
	}
	for name, value := range options {
		switch {
		case name == "include_obfuscation", isNull(value):
		case name == "include_usage":
			if err := boolean(value, &a.usage); err != nil {
				return errors.New("include_usage " + err.Error())
			}
		default:
			return errors.New("has an unknown option")
		}
	}
	return nil
}
