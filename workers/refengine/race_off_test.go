//go:build !race

package refengine

const underRace = false
