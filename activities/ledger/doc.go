// Package ledger is the port to what says *who may try*: the idempotency
// claims of clients' keys, the promises of blocks on decode engines, the marks
// of cancelled handoffs and the registry of engines.
//
// Guarantees, as long as the store keeps its writes: one claim of a key within
// its window has one holder (S13); the promises of an engine never exceed its
// total, and each is released once whatever the number and order of releases
// (S8, rule 16); every promise, claim and mark ends by itself.
//
// Not guaranteed, on purpose: that the store keeps its writes. It may lose its
// last ones or all of them, and its clock may jump. Then two gateways may hold
// one claim (the workflow id tells them apart) and more may be promised than an
// engine has (its transferd refuses). A loss costs a refusal, nothing else
// (rule 16): no fence, no commit and no free of memory ever depends on an
// answer from here.
//
// After a loss an engine's promises are unknown, so Reserve refuses with
// CodeUnavailable until Rebuild has taken over the list of the engine's daemon.
// Registered.Built tells it per engine; Born tells it for the whole store.
//
// Every method is idempotent: a promise is named by its attempt, a claim by its
// handoff and owner, a registration by the process's incarnation, so these are
// the operation ids and a repeat has no second effect and answers the present
// state (rule 8). An error of CodeUnavailable says nothing about whether the
// operation was done (rule 23): repeat it, or undo it; both are harmless.
// Every method may answer CodeUnavailable, CodeInvalid and CodeTooLarge; other
// codes stand at the method.
package ledger
