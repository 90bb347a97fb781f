// Package cli is the command line: it alone (with main and cmd packages) reads
// flags, the environment and files of settings, and it wires the processes.
//
// A setting comes from, first found first taken: its flag; the environment,
// SUREHAND_<COMMAND>_<FLAG> before SUREHAND_<FLAG>; the file named by --config,
// in the section of the command before the top level; its default. See apply.
package cli
