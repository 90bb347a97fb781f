// Package peers measures Surehand where it takes a stateless router's place: in
// front of static engines (`surehand serve --prefill … --decode …`), beside the
// routers that people use there and the bare floor, where the load generator
// plays P and then D itself. All stand in front of the same fake engines and are
// asked in turns, round by round; every stream is checked token by token.
//
// What is compared: CPU as a multiple of what the fakes used in the same rounds,
// and time to first token less the floor's of the same round. Both survive a
// machine that others use; absolute times do not.
package peers
