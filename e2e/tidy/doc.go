// Package tidy checks the repository itself: who imports whom, that the protocol's
// code stays pure, that its states, promises and rules stand in text, table,
// transcript and model alike, that tests do not sleep and that generated code
// belongs to its source. Policy, not taste: each row has its reason beside it.
// Folders that do not exist yet break nothing.
package tidy
