package rpc

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	transferv1 "github.com/surehand/surehand/contracts/gen/surehand/transfer/v1"
	"github.com/surehand/surehand/contracts/handoff"
)

// Failure to the wire; nil for no error.
func Failure(err error) *transferv1.Failure {
	if err == nil {
		return nil
	}
	var e *handoff.Error
	if !errors.As(err, &e) {
		e = handoff.Errorf(handoff.CodeOf(err), "%s", err.Error())
	}
	return &transferv1.Failure{Code: e.Code.String(), Detail: e.Detail}
}

// FromFailure is the inverse; nil for a nil message.
func FromFailure(f *transferv1.Failure) error {
	if f == nil || f.GetCode() == "" {
		return nil
	}
	return &handoff.Error{Code: handoff.ParseCode(f.GetCode()), Detail: f.GetDetail()}
}

// grpcCode chooses the status that a client without our details understands.
var grpcCode = map[handoff.Code]codes.Code{
	handoff.CodeNotReady: codes.FailedPrecondition, handoff.CodeUnavailable: codes.Unavailable,
	handoff.CodeCapacity: codes.ResourceExhausted, handoff.CodeInvalid: codes.InvalidArgument,
	handoff.CodeTooLarge: codes.InvalidArgument, handoff.CodeDenied: codes.PermissionDenied,
	handoff.CodeKeyReused: codes.AlreadyExists, handoff.CodeCancelled: codes.Canceled,
	handoff.CodeDeadline: codes.DeadlineExceeded, handoff.CodeInternal: codes.Internal,
	handoff.CodeOutcomeUnknown: codes.Unknown, handoff.CodeIntegrity: codes.DataLoss,
	handoff.CodeEngine: codes.Unavailable, handoff.CodeGone: codes.NotFound,
}

// Status turns a typed refusal into a gRPC error that carries it.
func Status(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	c, ok := grpcCode[handoff.CodeOf(err)]
	if !ok {
		c = codes.Aborted
	}
	return StatusAs(c, err)
}

// StatusAs is Status with a code of gRPC's own, where that says more.
func StatusAs(c codes.Code, err error) error {
	f := Failure(err)
	st, derr := status.New(c, f.Code+": "+f.Detail).WithDetails(f)
	if derr != nil {
		return status.Error(c, f.Code+": "+f.Detail)
	}
	return st.Err()
}

// FromStatus reads a gRPC error back into a typed one. An error without our
// detail tells nothing about what was done: CodeUnavailable (rule 23).
func FromStatus(err error) error {
	if err == nil {
		return nil
	}
	var e *handoff.Error
	if errors.As(err, &e) {
		return e
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return handoff.Errorf(handoff.CodeUnavailable, "%s", err.Error())
	}
	st, ok := status.FromError(err)
	if !ok {
		return handoff.Errorf(handoff.CodeUnavailable, "%s", err.Error())
	}
	for _, d := range st.Details() {
		if f, ok := d.(*transferv1.Failure); ok {
			return FromFailure(f)
		}
	}
	return handoff.Errorf(handoff.CodeUnavailable, "%s: %s", st.Code(), st.Message())
}
