package sim

// Rules that a case may leave out, to show that the checks find it. Rules of
// the real machines are left out by the explorer and by mutants of their source.
const (
	drainSource   = "P's engine frees on closed, not on drained (22)"
	readerRecords = "the reader writes bytes of what it gave up (5c, 2)"
	readerLife    = "another life of the reader answers for it (5c, 4)"
	recordedFirst = "a plan is acted upon within the task that took it (2)"
	clientLeaves  = "the client listens to its older connection too (5c, 7)"
)

// Plants lists them; each must be found.
var Plants = []string{drainSource, readerRecords, readerLife, clientLeaves, recordedFirst}

// omits says whether this case leaves a rule out.
func (s *Sim) omits(rule string) bool { return s.c.Plant == rule }
