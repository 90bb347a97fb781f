package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
)

const queue = "tests"

// greet waits for a name and answers with a greeting.
func greet(ctx workflow.Context) (string, error) {
	var name string
	workflow.GetSignalChannel(ctx, "name").Receive(ctx, &name)
	return "hello " + name, nil
}

func startWorker(t *testing.T, c client.Client, register func(worker.Worker)) worker.Worker {
	t.Helper()
	w := worker.New(c, queue, worker.Options{})
	register(w)
	if err := w.Start(); err != nil {
		t.Fatal(err)
	}
	return w
}

// startUntilKilled starts workflows from several callers at once, kills the
// server amid their calls, and returns the ids of those it acknowledged.
func startUntilKilled(t *testing.T, s *server, c client.Client) []string {
	t.Helper()
	const callers, enough = 4, 40
	acknowledged := make(chan string)
	var calls sync.WaitGroup
	for caller := range callers {
		calls.Go(func() {
			for n := 0; ; n++ {
				id := fmt.Sprintf("survivor-%d-%d", caller, n)
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				_, err := c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: id, TaskQueue: queue, WorkflowTaskTimeout: time.Second}, greet)
				cancel()
				if err != nil {
					return // the server is dead: nothing was promised
				}
				acknowledged <- id
			}
		})
	}
	go func() { calls.Wait(); close(acknowledged) }()
	var ids []string
	for id := range acknowledged {
		if ids = append(ids, id); len(ids) == enough {
			s.kill()
		}
	}
	if len(ids) < enough {
		t.Fatalf("only %d starts were acknowledged before any kill", len(ids))
	}
	return ids
}

func TestAcknowledgedWorkflowsSurviveKillNine(t *testing.T) {
	onEither(t, func(t *testing.T, data string) {
		ctx := within(t)
		first := startServer(t, data)
		c := first.client(t)
		w := startWorker(t, c, func(w worker.Worker) { w.RegisterWorkflow(greet) })
		ids := startUntilKilled(t, first, c)
		w.Stop()

		second := startServer(t, data)
		c = second.client(t)
		w = startWorker(t, c, func(w worker.Worker) { w.RegisterWorkflow(greet) })
		defer w.Stop()
		for _, id := range ids {
			if err := c.SignalWorkflow(ctx, id, "", "name", id); err != nil {
				t.Fatalf("acknowledged workflow %s is lost: %v", id, err)
			}
		}
		for _, id := range ids {
			var greeting string
			if err := c.GetWorkflow(ctx, id, "").Get(ctx, &greeting); err != nil || greeting != "hello "+id {
				t.Fatalf("workflow %s answers %q: %v", id, greeting, err)
			}
		}
		history := c.GetWorkflowHistory(ctx, ids[0], "", false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
		event, err := history.Next()
		if err != nil || event.GetEventType() != enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED {
			t.Fatalf("first event %v: %v", event, err)
		}
	})
}

func TestASecondRunKeepsTheDataAndAddsSearchAttributes(t *testing.T) {
	onEither(t, func(t *testing.T, data string) {
		ctx := within(t)
		first := startServer(t, data, "--search-attributes", "SurehandTenant=Keyword")
		run, err := first.client(t).ExecuteWorkflow(ctx, client.StartWorkflowOptions{
			ID: "kept", TaskQueue: queue,
			TypedSearchAttributes: temporal.NewSearchAttributes(temporal.NewSearchAttributeKeyKeyword("SurehandTenant").ValueSet("acme")),
		}, greet)
		if err != nil {
			t.Fatal(err)
		}
		first.stop(t)

		second := startServer(t, data) // the default attributes: six more
		c := second.client(t)
		if _, err := c.DescribeWorkflowExecution(ctx, "kept", run.GetRunID()); err != nil {
			t.Fatal(err)
		}
		attributes := temporal.NewSearchAttributes(
			temporal.NewSearchAttributeKeyKeyword("SurehandTenant").ValueSet("acme"),
			temporal.NewSearchAttributeKeyKeyword("SurehandModel").ValueSet("m"),
			temporal.NewSearchAttributeKeyKeyword("SurehandPrefill").ValueSet("p0"),
			temporal.NewSearchAttributeKeyKeyword("SurehandDecode").ValueSet("d0"),
			temporal.NewSearchAttributeKeyKeyword("SurehandPhase").ValueSet("commit"),
			temporal.NewSearchAttributeKeyKeyword("SurehandOutcome").ValueSet("ok"),
			temporal.NewSearchAttributeKeyInt64("SurehandEpoch").ValueSet(7),
		)
		if _, err := c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: "added", TaskQueue: queue, TypedSearchAttributes: attributes}, greet); err != nil {
			t.Fatal(err)
		}
		awaitListed(t, c, "SurehandTenant='acme'", 2)
		awaitListed(t, c, "SurehandTenant='acme' AND SurehandDecode='d0' AND SurehandEpoch=7", 1)
	})
}

// awaitListed polls until a query finds so many workflows: visibility follows
// the start by a moment.
func awaitListed(t *testing.T, c client.Client, query string, want int64) {
	t.Helper()
	await(t, func() error {
		found, err := c.CountWorkflow(within(t), &workflowservice.CountWorkflowExecutionsRequest{Query: query})
		if err == nil && found.GetCount() != want {
			err = fmt.Errorf("%q found %d workflows, not %d", query, found.GetCount(), want)
		}
		return err
	})
}

func TestTheFirstTaskComesWithTheStart(t *testing.T) {
	started, err := startServer(t, dataDir(t)).raw(t).StartWorkflowExecution(within(t), &workflowservice.StartWorkflowExecutionRequest{
		Namespace: "default", WorkflowId: "eager", RequestId: "1", RequestEagerExecution: true,
		WorkflowType: &commonpb.WorkflowType{Name: "any"}, TaskQueue: &taskqueuepb.TaskQueue{Name: queue},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(started.GetEagerWorkflowTask().GetTaskToken()) == 0 {
		t.Fatal("the start was not eager")
	}
}

func TestEveryNamespaceIsUsableWhenReady(t *testing.T) {
	raw := startServer(t, dataDir(t), "--namespace", "one", "--namespace", "two", "--retention", "2h").raw(t)
	for _, name := range []string{"one", "two"} {
		found, err := raw.DescribeNamespace(within(t), &workflowservice.DescribeNamespaceRequest{Namespace: name})
		if err != nil {
			t.Fatal(err)
		}
		if kept := found.GetConfig().GetWorkflowExecutionRetentionTtl().AsDuration().Hours(); kept != 2 {
			t.Fatalf("namespace %s keeps %v h", name, kept)
		}
	}
}

func TestTheUIShowsThePageAndTheNamespace(t *testing.T) {
	s := startServer(t, dataDir(t), "--ui", "127.0.0.1:0")
	if page := get(t, s.UI); !strings.Contains(page, "<!doctype html>") {
		t.Fatalf("page: %.200s", page)
	}
	var listed struct {
		Namespaces []struct {
			NamespaceInfo struct{ Name string }
		}
	}
	if err := json.Unmarshal([]byte(get(t, s.UI+"api/v1/namespaces")), &listed); err != nil {
		t.Fatal(err)
	}
	if len(listed.Namespaces) == 0 || listed.Namespaces[0].NamespaceInfo.Name != "default" {
		t.Fatalf("the UI lists %+v", listed)
	}
	s.stop(t)
}

func get(t *testing.T, url string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(within(t), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("GET %s: status %d, %v", url, response.StatusCode, err)
	}
	return string(body)
}

func TestDataOfAnotherServerVersionIsRefused(t *testing.T) {
	data := dataDir(t)
	startServer(t, data).stop(t)
	path := filepath.Join(data, "version.json")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	older := strings.Replace(string(text), `"server": "1.`, `"server": "0.`, 1)
	if older == string(text) {
		t.Fatalf("no server version in %s", text)
	}
	if err := os.WriteFile(path, []byte(older), 0o600); err != nil {
		t.Fatal(err)
	}
	said := refused(t, "--data", data, "--listen", "127.0.0.1:0", "--ui", "")
	if !strings.Contains(said, "another server version") || !strings.Contains(said, "name another --data") {
		t.Fatalf("the refusal does not say what to do:\n%s", said)
	}
}

func TestASecondServerOnTheSameDataIsRefused(t *testing.T) {
	onEither(t, func(t *testing.T, data string) {
		startServer(t, data)
		if said := refused(t, append(on(data), "--listen", "127.0.0.1:0", "--ui", "")...); !strings.Contains(said, "in use") {
			t.Fatal(said)
		}
	})
}

func TestASearchAttributeOfAnotherTypeIsRefused(t *testing.T) {
	data := dataDir(t)
	startServer(t, data, "--search-attributes", "Size=Int").stop(t)
	said := refused(t, "--data", data, "--listen", "127.0.0.1:0", "--ui", "", "--search-attributes", "Size=Keyword")
	if !strings.Contains(said, "a type cannot be changed") {
		t.Fatal(said)
	}
}

func TestAddressesBeyondLoopbackAreRefused(t *testing.T) {
	for _, flag := range []string{"--listen", "--ui", "--metrics"} {
		said := refused(t, "--data", dataDir(t), flag, "0.0.0.0:0")
		if !strings.Contains(said, "not a loopback address") || !strings.Contains(said, flag) {
			t.Fatal(said)
		}
	}
}
