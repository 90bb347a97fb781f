package main

import (
	"testing"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
)

var (
	attrKeyword = temporal.NewSearchAttributeKeyKeyword("TestKeyword")
	attrInt     = temporal.NewSearchAttributeKeyInt64("TestInt")
	attrDouble  = temporal.NewSearchAttributeKeyFloat64("TestDouble")
	attrBool    = temporal.NewSearchAttributeKeyBool("TestBool")
	attrTime    = temporal.NewSearchAttributeKeyTime("TestTime")
	attrList    = temporal.NewSearchAttributeKeyKeywordList("TestList")
	attrText    = temporal.NewSearchAttributeKeyString("TestText")
)

const everyKind = "TestKeyword=Keyword,TestInt=Int,TestDouble=Double,TestBool=Bool,TestTime=Datetime,TestList=KeywordList,TestText=Text"

// changeable waits to be told to change its attributes, then to end.
func changeable(ctx workflow.Context) error {
	next := workflow.GetSignalChannel(ctx, "next")
	next.Receive(ctx, nil)
	if err := workflow.UpsertTypedSearchAttributes(ctx, attrKeyword.ValueSet("after"), attrInt.ValueSet(8), attrDouble.ValueUnset(),
		attrList.ValueSet([]string{"blue"}), attrText.ValueSet("a slow green turtle")); err != nil {
		return err
	}
	next.Receive(ctx, nil)
	return nil
}

// The list of workflows is written in our own, leaner way: every query that the
// server offers must find what it would find in its own.
func TestWorkflowsAreFoundByEveryKindOfAttribute(t *testing.T) {
	onEither(t, func(t *testing.T, data string) {
		s, ctx := startServer(t, data, "--search-attributes", everyKind), within(t)
		c := s.client(t)
		w := startWorker(t, c, func(w worker.Worker) { w.RegisterWorkflow(changeable) })
		defer w.Stop()
		at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		run, err := c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: "tenant/a", TaskQueue: queue,
			TypedSearchAttributes: temporal.NewSearchAttributes(attrKeyword.ValueSet("before"), attrInt.ValueSet(7), attrDouble.ValueSet(1.5),
				attrBool.ValueSet(true), attrTime.ValueSet(at), attrList.ValueSet([]string{"red", "blue"}), attrText.ValueSet("the quick brown fox")),
		}, changeable)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: "tenant/b", TaskQueue: queue}, changeable); err != nil {
			t.Fatal(err)
		}
		find := func(want map[string]int64) {
			t.Helper()
			for query, n := range want {
				awaitListed(t, c, query, n)
			}
		}
		find(map[string]int64{"": 2, "WorkflowType='changeable'": 2, "WorkflowId STARTS_WITH 'tenant/'": 2, "WorkflowId='tenant/b'": 1,
			"ExecutionStatus='Running'": 2, "TestKeyword='before'": 1, "TestInt > 6 AND TestInt < 8": 1, "TestDouble=1.5": 1, "TestBool=true": 1,
			"TestTime > '2026-01-01T00:00:00Z' AND TestTime < '2026-01-03T00:00:00Z'": 1, "TestList='red'": 1, "TestList IN ('blue','grey')": 1, "TestList='grey'": 0, "TestText='brown'": 1,
			"TestText='green'": 0, "TestKeyword IS NULL": 1, "TaskQueue='" + queue + "'": 2, "StartTime > '2020-01-01T00:00:00Z'": 2})

		if err := c.SignalWorkflow(ctx, "tenant/a", "", "next", nil); err != nil {
			t.Fatal(err)
		}
		find(map[string]int64{"TestKeyword='after'": 1, "TestKeyword='before'": 0, "TestInt=8": 1, "TestDouble IS NULL": 2, "TestBool=true": 1,
			"TestList='red'": 0, "TestList='blue'": 1, "TestText='brown'": 0, "TestText='turtle'": 1, "ExecutionStatus='Running'": 2})

		if err := c.SignalWorkflow(ctx, "tenant/a", "", "next", nil); err != nil {
			t.Fatal(err)
		}
		if err := run.Get(ctx, nil); err != nil {
			t.Fatal(err)
		}
		find(map[string]int64{"ExecutionStatus='Running'": 1, "ExecutionStatus='Completed' AND TestText='turtle'": 1, "CloseTime IS NOT NULL": 1,
			"HistoryLength > 5": 1})
		groups, err := c.CountWorkflow(ctx, &workflowservice.CountWorkflowExecutionsRequest{Query: "GROUP BY ExecutionStatus"})
		if err != nil || len(groups.GetGroups()) != 2 || groups.GetCount() != 2 {
			t.Fatalf("groups %v, %v", groups, err)
		}
		first, err := c.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{PageSize: 1})
		if err != nil || len(first.GetExecutions()) != 1 || first.GetExecutions()[0].GetExecution().GetWorkflowId() != "tenant/b" {
			t.Fatalf("first page %v, %v: running ones come first", first, err)
		}
		second, err := c.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{PageSize: 1, NextPageToken: first.GetNextPageToken()})
		if err != nil || len(second.GetExecutions()) != 1 || second.GetExecutions()[0].GetExecution().GetWorkflowId() != "tenant/a" {
			t.Fatalf("second page %v, %v", second, err)
		}
	})
}
