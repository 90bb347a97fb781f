// Package vllmbench measures real vLLM engines that hand over by NIXL and by our
// connector, in one run and in turns: time to first token, CPU time, memory.
package vllmbench
