package embedded

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/surehand/surehand/deploy/temporal/settings"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"
)

// pollEvery is how often readiness is asked for while the server comes up.
const pollEvery = 10 * time.Millisecond

// waitNamespace returns when the frontend answers for the namespace.
func waitNamespace(ctx context.Context, conn *grpc.ClientConn, namespace string) error {
	frontend := workflowservice.NewWorkflowServiceClient(conn)
	return until(ctx, "namespace "+namespace, func() error {
		_, err := frontend.DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: namespace})
		return err
	})
}

// registerAttributes adds the search attributes that the namespace lacks, and
// returns when a query by all of them works. Adding one twice changes nothing;
// one that is there with another type is refused, as it cannot be changed.
func registerAttributes(ctx context.Context, conn *grpc.ClientConn, namespace string, wanted settings.SearchAttributes) error {
	if len(wanted) == 0 {
		return nil
	}
	operator := operatorservice.NewOperatorServiceClient(conn)
	have, err := operator.ListSearchAttributes(ctx, &operatorservice.ListSearchAttributesRequest{Namespace: namespace})
	if err != nil {
		return fmt.Errorf("list the search attributes of namespace %q: %w", namespace, err)
	}
	missing := map[string]enumspb.IndexedValueType{}
	for _, name := range wanted.Names() {
		kind, there := have.GetCustomAttributes()[name]
		switch {
		case !there:
			missing[name] = wanted[name]
		case kind != wanted[name]:
			return fmt.Errorf("search attribute %s of namespace %q is of type %s, not %s, and a type cannot be changed: name another --data or another attribute", name, namespace, kind, wanted[name])
		}
	}
	if len(missing) > 0 {
		_, err = operator.AddSearchAttributes(ctx, &operatorservice.AddSearchAttributesRequest{Namespace: namespace, SearchAttributes: missing})
		if err != nil {
			return fmt.Errorf("add search attributes to namespace %q: %w", namespace, err)
		}
	}
	return waitAttributes(ctx, conn, namespace, wanted)
}

// waitAttributes proves the attributes usable by counting workflows by them:
// the frontend learns of a new one only when it refreshes its namespaces.
func waitAttributes(ctx context.Context, conn *grpc.ClientConn, namespace string, wanted settings.SearchAttributes) error {
	conditions := make([]string, 0, len(wanted))
	for _, name := range wanted.Names() {
		conditions = append(conditions, name+" IS NOT NULL")
	}
	frontend := workflowservice.NewWorkflowServiceClient(conn)
	request := &workflowservice.CountWorkflowExecutionsRequest{Namespace: namespace, Query: strings.Join(conditions, " AND ")}
	return until(ctx, "search attributes of namespace "+namespace, func() error {
		_, err := frontend.CountWorkflowExecutions(ctx, request)
		return err
	})
}

// until tries again until it works or the context ends, and then says why the
// last try failed.
func until(ctx context.Context, what string, try func() error) error {
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is not usable in time: %w", what, err)
		case <-ticker.C:
		}
	}
}
