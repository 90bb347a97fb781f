// Package port keeps processes that begin at once on one machine off each other's
// ports: one that is chosen is often listened at much later, by a child that imports
// a library for 20 s, say.
package port
