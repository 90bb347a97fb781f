// Package scenario shows, on real processes, what Surehand promises. One file a
// scenario; the file says what happens and what must come of it.
//
// `go test ./e2e/scenario` runs a core in a minute or two, where the embedded
// Temporal server was built before (`go run . dev` does); `-tags e2e` builds it
// when it is missing and runs everything; `-short` runs nothing here.
//
// A fleet is shared by the scenarios that leave it as they found it: each
// begins and ends at rest, and one that does not gets the fleet replaced.
package scenario
