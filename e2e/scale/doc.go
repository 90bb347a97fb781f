// Package scale measures how many durable handoffs a second one machine makes,
// and what each costs which process: on SQLite and on a real PostgreSQL, by
// history shards, by gateways and by what a history records. Each cell is a
// fleet of its own under a closed loop; what is counted (CPU, commands,
// transactions) is exact, what is timed is of this machine. Beside that, what
// becomes of requests that all come in one moment.
package scale
