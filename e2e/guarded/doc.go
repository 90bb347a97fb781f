// Package guarded shows, on real processes behind an access file, who may do
// what: every port is scanned, tenants are kept apart, real clients of others
// (Python's openai, grpcurl) see what their users would, and a statistical probe
// looks for another tenant's prompts in the time to the first token.
package guarded
