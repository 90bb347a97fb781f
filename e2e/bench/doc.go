// Package bench measures what an orchestrator costs: the bare floor, where the
// load generator calls engines and daemons itself (e2e/bare), and Surehand, on
// the same processes, in turns, round by round. What is compared is the
// difference within a round; what is counted (events, writes, CPU) is exact.
package bench
