// Package soak keeps a whole fleet under mixed traffic and gentle faults, and
// asks whether anything grows: memory, descriptors and goroutines of every kind
// of process, the bytes that daemons have registered, the store's keys, the
// workflows that are open.
//
// Each of them is sampled, the beginning is left out as warm-up, and a line is
// laid through the rest by least squares. A measure grows when, with twice the
// standard error taken off its slope, the line still rises by more than its
// tolerance over the window: a tenth of its mean, or a floor beside that for
// small numbers. Gentle faults end no process, so that a slope is of one life.
package soak
