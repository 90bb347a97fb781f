// Package answer keeps the text of one completion: it cuts what a decode
// produces into pieces that may be shown (Cutter), and remembers them so that a
// reader can join late, fall behind or come back (Log).
//
// # What is guaranteed
//
//  1. A piece is valid UTF-8 and never ends inside a character; bytes that are
//     no UTF-8 become U+FFFD.
//  2. No part of a stop string is ever shown: text that could still become one
//     is held back until it is known.
//  3. Pieces stand at positions that follow each other without gap, the same
//     ones for every reader.
//  4. A Log ends once. What was appended after its end is dropped.
package answer
