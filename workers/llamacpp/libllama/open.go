package libllama

import (
	"errors"
	"path/filepath"
	"runtime"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/surehand/surehand/contracts/handoff"
)

// functions of the library that take and give plain values.
type functions struct {
	backendInit     func()
	backendLoad     func(dir string)
	logSet          func(callback, data uintptr)
	modelVocab      func(model uintptr) uintptr
	modelContext    func(model uintptr) int32
	modelTemplate   func(model uintptr, name *byte) *byte
	modelFree       func(model uintptr)
	vocabTokens     func(vocab uintptr) int32
	vocabIsEnd      func(vocab uintptr, token int32) bool
	tokenize        func(vocab uintptr, text *byte, bytes int32, tokens *int32, room int32, special, parse bool) int32
	piece           func(vocab uintptr, token int32, into *byte, room, strip int32, special bool) int32
	chatTemplate    func(template, chat unsafe.Pointer, messages uintptr, turn bool, into *byte, room int32) int32
	contextTokens   func(context uintptr) uint32
	contextMemory   func(context uintptr) uintptr
	contextThreads  func(context uintptr, one, batch int32)
	contextFree     func(context uintptr)
	logits          func(context uintptr, i int32) *float32
	sequenceRemove  func(memory uintptr, sequence, from, to int32) bool
	stateSize       func(context uintptr, sequence int32) uintptr
	stateGet        func(context uintptr, into *byte, bytes uintptr, sequence int32) uintptr
	stateSet        func(context uintptr, from *byte, bytes uintptr, sequence int32) uintptr
	maxSequences    func() uintptr
	modelDefaults   uintptr // those below take or give structs by value
	contextDefaults uintptr
	modelLoad       uintptr
	contextNew      uintptr
	decode          uintptr
}

// once: a library is never unloaded, its threads and callbacks may outlive it.
var loaded struct {
	sync.Mutex
	dir string
	f   *functions
}

// open loads the library of a folder, once in a process.
func open(dir string) (*functions, error) {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		return nil, handoff.Errorf(handoff.CodeInvalid, "libllama is called on linux/amd64 only, here is %s/%s", runtime.GOOS, runtime.GOARCH)
	}
	loaded.Lock()
	defer loaded.Unlock()
	if loaded.f != nil {
		if loaded.dir != dir {
			return nil, handoff.Errorf(handoff.CodeInvalid, "another libllama is loaded in this process")
		}
		return loaded.f, nil
	}
	f := &functions{}
	var library, tensors uintptr
	for _, l := range []struct {
		pattern string
		handle  *uintptr
	}{{"libggml-base*.so*", new(uintptr)}, {"libggml.*so*", &tensors}, {"libllama.*so*", &library}} {
		var err error
		if *l.handle, err = load(dir, l.pattern); err != nil {
			return nil, err
		}
	}
	if err := f.find(library, tensors); err != nil {
		return nil, err
	}
	f.logSet(purego.NewCallback(func(uintptr, uintptr, uintptr) uintptr { return 0 }), 0) // its log may quote what it is given
	f.backendLoad(dir)
	f.backendInit()
	loaded.dir, loaded.f = dir, f
	return f, nil
}

// load opens the one file of a pattern, so that its name may carry a version.
func load(dir, pattern string) (uintptr, error) {
	found, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(found) == 0 {
		return 0, handoff.Errorf(handoff.CodeInvalid, "no %s in the folder of llama.cpp's libraries", pattern)
	}
	handle, err := purego.Dlopen(found[0], purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		return 0, handoff.Errorf(handoff.CodeInvalid, "load %s: %s", filepath.Base(found[0]), err)
	}
	return handle, nil
}

// find resolves every name or says which are missing.
func (f *functions) find(library, tensors uintptr) error {
	var missing []error
	for name, to := range map[string]any{
		"llama_backend_init": &f.backendInit, "llama_log_set": &f.logSet,
		"llama_model_get_vocab": &f.modelVocab, "llama_model_n_ctx_train": &f.modelContext, "llama_model_chat_template": &f.modelTemplate,
		"llama_model_free": &f.modelFree, "llama_vocab_n_tokens": &f.vocabTokens, "llama_vocab_is_eog": &f.vocabIsEnd,
		"llama_tokenize": &f.tokenize, "llama_token_to_piece": &f.piece, "llama_chat_apply_template": &f.chatTemplate,
		"llama_n_ctx_seq": &f.contextTokens, "llama_get_memory": &f.contextMemory, "llama_set_n_threads": &f.contextThreads, "llama_free": &f.contextFree,
		"llama_get_logits_ith": &f.logits, "llama_memory_seq_rm": &f.sequenceRemove, "llama_max_parallel_sequences": &f.maxSequences,
		"llama_state_seq_get_size": &f.stateSize, "llama_state_seq_get_data": &f.stateGet, "llama_state_seq_set_data": &f.stateSet,
	} {
		at, err := purego.Dlsym(library, name)
		if err != nil {
			missing = append(missing, err)
			continue
		}
		purego.RegisterFunc(to, at)
	}
	for name, to := range map[string]*uintptr{"llama_model_default_params": &f.modelDefaults, "llama_context_default_params": &f.contextDefaults,
		"llama_model_load_from_file": &f.modelLoad, "llama_init_from_model": &f.contextNew, "llama_decode": &f.decode} {
		var err error
		if *to, err = purego.Dlsym(library, name); err != nil {
			missing = append(missing, err)
		}
	}
	if at, err := purego.Dlsym(tensors, "ggml_backend_load_all_from_path"); err != nil {
		missing = append(missing, err)
	} else {
		purego.RegisterFunc(&f.backendLoad, at)
	}
	if err := errors.Join(missing...); err != nil {
		return handoff.Errorf(handoff.CodeInvalid, "this libllama lacks what is needed: %s", err)
	}
	return nil
}
