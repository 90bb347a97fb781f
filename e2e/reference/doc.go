// Package reference keeps what docs/ says of the code current: the gRPC API of
// the protos, limits and the access file's keys. `task docs` writes them anew.
package reference
