package workflows

// Changes of what a history holds. A history that began before one replays as it was.
const (
	// changeAwaitReader: an attempt that nobody can prove closed waits for a client
	// that comes again. Before, it ended at once.
	changeAwaitReader = "await-reader"
	// changeResetSticks: a reset run ends completed, because its key is spent. Before,
	// it failed, and its id was free.
	changeResetSticks = "reset-sticks"
	// changeRecordedFirst: the task that took another plan, or another reader, is
	// history before anything acts under it. Before, its steps ran within that task.
	changeRecordedFirst = "recorded-first"
	// changeUnprovenSticks: the key of an attempt that ended without anybody's proof that
	// it was not committed is spent. Before, it was free.
	changeUnprovenSticks = "unproven-sticks"
)
