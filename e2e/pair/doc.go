// Package pair is real vLLM engines that transfer by NIXL, spoken to as a client
// and looked at by their own counters.
package pair
