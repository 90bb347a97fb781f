package model

import "math"

// The sliding-window layer rotates q and k by the absolute position, so a ring
// that is read at a wrong position is as wrong as one with wrong bytes.

// rotation is cos and sin of one position's angles.
type rotation [2][headDim / 2]float32

func rotations() []rotation {
	out := make([]rotation, MaxPositions)
	for p := range out {
		for i := range out[p][0] {
			angle := float64(p) * math.Pow(ropeBase, -float64(i)/(headDim/2))
			out[p][0][i], out[p][1][i] = float32(math.Cos(angle)), float32(math.Sin(angle))
		}
	}
	return out
}

// rotate turns each head of x in place.
func rotate(x []float32, by *rotation) {
	for ; len(x) >= headDim; x = x[headDim:] {
		h := (*[headDim]float32)(x)
		for i := range headDim / 2 {
			a, b, cos, sin := h[i], h[i+headDim/2], by[0][i], by[1][i]
			h[i] = float32(a*cos) - float32(b*sin)
			h[i+headDim/2] = float32(a*sin) + float32(b*cos)
		}
	}
}
