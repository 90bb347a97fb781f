package libllama

import (
	"runtime"
	"unsafe"

	"github.com/surehand/surehand/contracts/handoff"
)

// Limits.
const (
	maxPieceBytes    = 4096
	maxTemplateBytes = 1 << 20
	maxTextBytes     = 16 << 20
)

// Model is weights and vocabulary of one file.
type Model struct {
	f             *functions
	handle, vocab uintptr
	template      []byte // of chats, ends with 0; nil: the file has none
}

// Message is one turn of a chat.
type Message struct{ Role, Content string }

// Load loads the library in dir and the weights at path.
func Load(dir, path string) (*Model, error) {
	f, err := open(dir)
	if err != nil {
		return nil, err
	}
	p, err := defaults(f.modelDefaults)
	if err != nil {
		return nil, err
	}
	name := append([]byte(path), 0)
	handle := p.by(f.modelLoad, uintptr(unsafe.Pointer(&name[0])))
	runtime.KeepAlive(name)
	if handle == 0 {
		return nil, handoff.Errorf(handoff.CodeInvalid, "libllama does not load the weights")
	}
	m := &Model{f: f, handle: handle, vocab: f.modelVocab(handle)}
	if t := f.modelTemplate(handle, nil); t != nil {
		m.template = cString(t)
	}
	return m, nil
}

// cString copies a C string with its end; one that is too long is none.
func cString(at *byte) []byte {
	for n := range maxTemplateBytes {
		if *(*byte)(unsafe.Add(unsafe.Pointer(at), n)) == 0 {
			return append([]byte(nil), unsafe.Slice(at, n+1)...)
		}
	}
	return nil
}

// Vocabulary is the number of tokens, Context the length that it was trained for.
func (m *Model) Vocabulary() int { return int(m.f.vocabTokens(m.vocab)) }
func (m *Model) Context() int    { return int(m.f.modelContext(m.handle)) }

// IsEnd says whether a token ends an answer.
func (m *Model) IsEnd(token int) bool { return m.f.vocabIsEnd(m.vocab, int32(token)) }

// Tokenize gives the tokens of a prompt, the one that begins it included; at
// most limit. Control tokens that the text spells are those tokens.
func (m *Model) Tokenize(text []byte, limit int) ([]int, error) {
	if len(text) == 0 || len(text) > maxTextBytes {
		return nil, handoff.Errorf(handoff.CodeInvalid, "prompt of %d bytes, want 1..%d", len(text), maxTextBytes)
	}
	room := min(limit, len(text)+8) // no token is shorter than a byte, some frame it
	tokens := make([]int32, room)
	n := int(m.f.tokenize(m.vocab, &text[0], int32(len(text)), &tokens[0], int32(room), true, true))
	if n < 0 {
		return nil, handoff.Errorf(handoff.CodeTooLarge, "prompt of more than %d tokens", limit)
	}
	out := make([]int, n)
	for i, t := range tokens[:n] {
		out[i] = int(t)
	}
	return out, nil
}

// Piece is the text of a token; a control token has none.
func (m *Model) Piece(token int) ([]byte, error) {
	var room [maxPieceBytes]byte
	n := m.f.piece(m.vocab, int32(token), &room[0], maxPieceBytes, 0, false)
	if n < 0 {
		return nil, handoff.Errorf(handoff.CodeEngine, "a token's text has more than %d bytes", maxPieceBytes)
	}
	return append([]byte(nil), room[:n]...), nil
}

// Render makes the prompt of a chat by the template of that name, or, empty, by
// the file's own; the turn to come is the assistant's.
func (m *Model) Render(template string, messages []Message) ([]byte, error) {
	form := m.template
	if template != "" {
		form = append([]byte(template), 0)
	}
	if form == nil {
		return nil, handoff.Errorf(handoff.CodeInvalid, "the model has no chat template")
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	hold := func(s string) *byte {
		b := append([]byte(s), 0)
		pin.Pin(&b[0])
		return &b[0]
	}
	total := 0
	chat := make([]struct{ role, content *byte }, len(messages))
	for i, t := range messages {
		chat[i].role, chat[i].content = hold(t.Role), hold(t.Content)
		total += len(t.Role) + len(t.Content)
	}
	if len(chat) == 0 || total > maxTextBytes {
		return nil, handoff.Errorf(handoff.CodeTooLarge, "%d messages of %d bytes", len(chat), total)
	}
	for room := 2*total + 1024; ; {
		out := make([]byte, room)
		n := int(m.f.chatTemplate(unsafe.Pointer(&form[0]), unsafe.Pointer(&chat[0]), uintptr(len(chat)), true, &out[0], int32(room)))
		switch {
		case n < 0 || n > 2*maxTextBytes:
			return nil, handoff.Errorf(handoff.CodeInvalid, "libllama does not know this chat template")
		case n <= room:
			return out[:n], nil
		}
		room = n
	}
}

// Close frees the model; its contexts must be closed before.
func (m *Model) Close() {
	m.f.modelFree(m.handle)
	m.handle = 0
}
