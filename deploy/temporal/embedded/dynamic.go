package embedded

import (
	"time"

	"go.temporal.io/server/common/dynamicconfig"
)

// noLimit is far above what one machine's SQLite reaches: admission is the
// gateway's business, and a limit hit inside the server shows up as latency.
const noLimit = 100_000

// Poll limits. The default of 20 a shard and second adds 43 ms to every
// dispatch that is not eager; there is one shard.
const (
	queuePollRPS     = 2000
	queuePollHostRPS = 5000
	timerPollRPS     = 500
)

const (
	queueWorkers     = 32 // tasks of one queue at once
	queueAckInterval = 10 * time.Second
)

// dynamicConfig is what the server asks for while it runs.
func dynamicConfig() dynamicconfig.StaticClient {
	return dynamicconfig.StaticClient{
		// A handoff's first task is handed out with the start itself, and
		// its activities with the completion that schedules them.
		dynamicconfig.EnableEagerWorkflowStart.Key():                           true,
		dynamicconfig.EnableActivityEagerExecution.Key():                       true,
		dynamicconfig.FrontendEnableUpdateWorkflowExecution.Key():              true,
		dynamicconfig.FrontendEnableUpdateWorkflowExecutionAsyncAccepted.Key(): true,

		dynamicconfig.TransferProcessorMaxPollRPS.Key():       queuePollRPS,
		dynamicconfig.TransferProcessorMaxPollHostRPS.Key():   queuePollHostRPS,
		dynamicconfig.VisibilityProcessorMaxPollRPS.Key():     queuePollRPS,
		dynamicconfig.VisibilityProcessorMaxPollHostRPS.Key(): queuePollHostRPS,
		dynamicconfig.TimerProcessorMaxPollRPS.Key():          timerPollRPS,
		dynamicconfig.TimerProcessorMaxPollHostRPS.Key():      queuePollHostRPS,

		dynamicconfig.FrontendRPS.Key():                                                        noLimit,
		dynamicconfig.FrontendMaxNamespaceRPSPerInstance.Key():                                 noLimit,
		dynamicconfig.FrontendMaxNamespaceVisibilityRPSPerInstance.Key():                       noLimit,
		dynamicconfig.FrontendNamespaceReplicationInducingAPIsRPS.Key():                        noLimit,
		dynamicconfig.FrontendMaxNamespaceNamespaceReplicationInducingAPIsRPSPerInstance.Key(): noLimit,
		dynamicconfig.FrontendMaxConcurrentLongRunningRequestsPerInstance.Key():                noLimit,
		dynamicconfig.MatchingRPS.Key():                                                        noLimit,
		dynamicconfig.HistoryRPS.Key():                                                         noLimit,
		dynamicconfig.FrontendPersistenceMaxQPS.Key():                                          noLimit,
		dynamicconfig.HistoryPersistenceMaxQPS.Key():                                           noLimit,
		dynamicconfig.MatchingPersistenceMaxQPS.Key():                                          noLimit,
		dynamicconfig.WorkerPersistenceMaxQPS.Key():                                            noLimit,
		dynamicconfig.VisibilityPersistenceMaxReadQPS.Key():                                    noLimit,
		dynamicconfig.VisibilityPersistenceMaxWriteQPS.Key():                                   noLimit,

		// One process: a task queue in four parts only forwards to itself.
		dynamicconfig.MatchingNumTaskqueueReadPartitions.Key():  1,
		dynamicconfig.MatchingNumTaskqueueWritePartitions.Key(): 1,

		// A search attribute registered at start is known soon.
		dynamicconfig.NamespaceCacheRefreshInterval.Key(): 500 * time.Millisecond,

		// Sized for a cluster's host by default: some thousand goroutines that
		// do nothing. Those of the list of workflows wait for its commits.
		dynamicconfig.TransferProcessorSchedulerWorkerCount.Key():               queueWorkers,
		dynamicconfig.TimerProcessorSchedulerWorkerCount.Key():                  queueWorkers,
		dynamicconfig.MemoryTimerProcessorSchedulerWorkerCount.Key():            queueWorkers,
		dynamicconfig.ArchivalProcessorSchedulerWorkerCount.Key():               1,
		dynamicconfig.ReplicationProcessorSchedulerWorkerCount.Key():            1,
		dynamicconfig.ReplicationLowPriorityProcessorSchedulerWorkerCount.Key(): 1,
		dynamicconfig.VisibilityProcessorSchedulerWorkerCount.Key():             callers,

		// Done tasks are let go of soon; until then no new one is held against
		// each of them, which a queue does once it knows for which namespaces
		// it has tasks.
		dynamicconfig.TransferProcessorUpdateAckInterval.Key():   queueAckInterval,
		dynamicconfig.TimerProcessorUpdateAckInterval.Key():      queueAckInterval,
		dynamicconfig.VisibilityProcessorUpdateAckInterval.Key(): queueAckInterval,
		dynamicconfig.QueueShrinkPredicateMaxPendingKeys.Key():   -1,

		// A handoff's payloads are all in its history.
		dynamicconfig.ExternalPayloadsEnabled.Key(): false,

		// The default cache is sized for a cluster's host.
		dynamicconfig.HistoryCacheHostLevelMaxSize.Key(): historyCacheEntries,
	}
}

// historyCacheEntries is how many workflows' state the server keeps at hand:
// many times what one machine has open at once.
const historyCacheEntries = 8192
