package orchestrator

import (
	"context"
	"errors"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	operatev1 "github.com/surehand/surehand/contracts/gen/surehand/operate/v1"
	"github.com/surehand/surehand/contracts/handoff"
)

// Version is which code this worker runs, for Temporal's worker versioning. A
// handoff is pinned to the version that ran its first task: only workers of that
// version go on with it. The zero value is no versioning: any worker goes on with
// any history, which the replay of every recorded one makes safe.
type Version struct {
	Deployment, Build string
	Current           Current
}

// Current says when a worker makes its own version the one that handoffs begin
// on. Without any current version no worker of a deployment would be given a task.
type Current string

// The policies.
const (
	CurrentFirst  Current = "first"  // when the deployment has none yet
	CurrentAlways Current = "always" // at every start
	CurrentNever  Current = "never"  // an operator does
)

const (
	maxVersionBytes = 128
	currentEvery    = 100 * time.Millisecond // until the server has heard of a version's first poll
	deployWithin    = 10 * time.Second
)

func (v Version) validate() error {
	switch {
	case v == Version{}:
		return nil
	case v.Deployment == "" || v.Build == "" || len(v.Deployment) > maxVersionBytes || len(v.Build) > maxVersionBytes:
		return handoff.Errorf(handoff.CodeInvalid, "a deployment needs a name and a build id, each of at most %d bytes", maxVersionBytes)
	case v.Current != CurrentFirst && v.Current != CurrentAlways && v.Current != CurrentNever:
		return handoff.Errorf(handoff.CodeInvalid, "make current %q, want %q, %q or %q", v.Current, CurrentFirst, CurrentAlways, CurrentNever)
	}
	return nil
}

// options pin each handoff to the version of its first task.
func (v Version) options() worker.DeploymentOptions {
	if v.Deployment == "" {
		return worker.DeploymentOptions{}
	}
	return worker.DeploymentOptions{UseVersioning: true, DefaultVersioningBehavior: workflow.VersioningBehaviorPinned,
		Version: worker.WorkerDeploymentVersion{DeploymentName: v.Deployment, BuildID: v.Build}}
}

// makeCurrent follows the policy of v. The server hears of a version by its first
// poll, so it is asked until it has, or ctx ends.
//
// Idempotent: many replicas may do it at once; the server's token lets only one
// of those that saw no current version set it.
func (o *Orchestrator) makeCurrent(ctx context.Context, v Version) error {
	if v.Deployment == "" || v.Current == CurrentNever {
		return nil
	}
	h := o.temporal.WorkerDeploymentClient().GetHandle(v.Deployment)
	for {
		done, err := current(ctx, h, v)
		if done {
			return nil
		}
		select {
		case <-time.After(currentEvery):
		case <-ctx.Done():
			return errors.Join(handoff.Errorf(handoff.CodeUnavailable, "version %s of deployment %s does not become current", v.Build, v.Deployment), err)
		}
	}
}

func current(ctx context.Context, h client.WorkerDeploymentHandle, v Version) (done bool, err error) {
	d, err := h.Describe(ctx, client.WorkerDeploymentDescribeOptions{})
	if err != nil {
		return false, err
	}
	now := d.Info.RoutingConfig.CurrentVersion
	if now != nil && (now.BuildID == v.Build || v.Current == CurrentFirst) {
		return true, nil
	}
	_, err = h.SetCurrentVersion(ctx, client.WorkerDeploymentSetCurrentVersionOptions{BuildID: v.Build, ConflictToken: d.ConflictToken})
	return err == nil, err
}

// Deploy makes a version the one that handoffs begin on. Those under way stay
// where they are. A version of which no worker polls is refused by the server.
//
// Idempotent: a version that is current stays so.
func (o *Orchestrator) Deploy(ctx context.Context, by, build, reason string) error {
	v := o.cfg.Temporal.Version
	if v.Deployment == "" {
		return errUnversioned
	}
	if build == "" || len(build) > maxVersionBytes {
		return handoff.Errorf(handoff.CodeInvalid, "build: name one, of at most %d bytes", maxVersionBytes)
	}
	if err := o.audit(ctx, by, "deploy", v.Deployment+"/"+build, reason); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, deployWithin)
	defer cancel()
	_, err := o.temporal.WorkerDeploymentClient().GetHandle(v.Deployment).SetCurrentVersion(ctx, client.WorkerDeploymentSetCurrentVersionOptions{BuildID: build})
	return deployment(err)
}

var errUnversioned = handoff.Errorf(handoff.CodeInvalid, "this gateway's worker belongs to no deployment: see --deployment-name")

// deployment types what the server says of one.
func deployment(err error) error {
	var missing *serviceerror.NotFound
	var wrong *serviceerror.InvalidArgument
	var early *serviceerror.FailedPrecondition
	switch {
	case err == nil:
		return nil
	case errors.As(err, &missing), errors.As(err, &wrong), errors.As(err, &early):
		return handoff.Errorf(handoff.CodeInvalid, "deployment: %s", err.Error())
	}
	return handoff.Errorf(handoff.CodeUnavailable, "temporal: %s", err.Error())
}

// Versions are those of this worker's deployment: which one handoffs begin on,
// and of which some still run.
func (o *Orchestrator) Versions(ctx context.Context) (*operatev1.VersionsAnswer, error) {
	v := o.cfg.Temporal.Version
	if v.Deployment == "" {
		return nil, errUnversioned
	}
	ctx, cancel := context.WithTimeout(ctx, deployWithin)
	defer cancel()
	d, err := o.temporal.WorkerDeploymentClient().GetHandle(v.Deployment).Describe(ctx, client.WorkerDeploymentDescribeOptions{})
	if err != nil {
		return nil, deployment(err)
	}
	out := &operatev1.VersionsAnswer{Deployment: v.Deployment}
	for _, s := range d.Info.VersionSummaries {
		is := &operatev1.Version{Build: s.Version.BuildID, Here: s.Version.BuildID == v.Build}
		if now := d.Info.RoutingConfig.CurrentVersion; now != nil {
			is.Current = now.BuildID == is.Build
		}
		switch s.DrainageStatus {
		case client.WorkerDeploymentVersionDrainageStatusDraining:
			is.Drainage = "draining"
		case client.WorkerDeploymentVersionDrainageStatusDrained:
			is.Drainage = "drained"
		}
		out.Versions = append(out.Versions, is)
	}
	return out, nil
}
