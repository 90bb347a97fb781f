package workflows

// Changes of what a history holds. A history that began before one replays as it was.
const (
	// changeAwaitReader: an attempt that nobody can prove closed waits for a client
	// that comes again. Before, it ended at once.
	changeAwaitReader = "await-reader"
)
