package workflows

// Changes of what a history holds, and since when. A history that began before
// one replays as it was; testdata/histories has one of each.
const (
	// changeAwaitReader: an attempt that nobody can prove closed waits for a client
	// that comes again. Before, it ended at once (all-died-at-commit).
	changeAwaitReader = "await-reader"
)
