package main

// excuses say why a mutant that survives is no gap: the line is a second lock,
// a bound that nothing can reach, or changes only what people read.
var excuses = map[string]string{
	"contracts/handoff/fencing.go: c.end(Outcome{Attempt: c.plan.Attempt, Code: CodeCancelled}) => ":    "a second lock: Cancel decides the outcome at once, so no fence goes on behind it",
	"contracts/handoff/fencing.go: c.end(Outcome{Attempt: c.plan.Attempt, Code: CodeCancelled}) =>  #2": "a second lock: as above, for a plan that comes after the cancel",
}
