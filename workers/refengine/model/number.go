package model

import "math"

// normalise sets y to x over its root mean square, row by row.
func normalise(y, x []float32, rows int) {
	for r := range rows {
		a, b := x[r*dim:(r+1)*dim], y[r*dim:(r+1)*dim]
		var sum float32
		for _, v := range a {
			sum += float32(v * v)
		}
		scale := 1 / float32(math.Sqrt(float64(float32(sum/dim)+normEps)))
		for i, v := range a {
			b[i] = v * scale
		}
	}
}

// add sets x to x + y.
func add(x, y []float32) {
	y = y[:len(x)]
	for i := range x {
		x[i] += y[i]
	}
}

// squareRelu is the layers' nonlinearity: max(v, 0)².
func squareRelu(x []float32) {
	for i, v := range x {
		if v > 0 {
			x[i] = v * v
		} else if v <= 0 {
			x[i] = 0
		} // a NaN stays: a poisoned input must reach the logits
	}
}

// exp is eˣ for x ≤ 0, by Cephes' polynomial. The standard library's uses fused
// operations where the processor has them, so its bits depend on the machine.
func exp(x float32) float32 {
	if x < -87 {
		return 0
	}
	const log2e, ln2High, ln2Low = 1.44269504, 0.693359375, -2.12194440e-4
	whole := int32(float32(x*log2e) - 0.5) // to the nearest: the conversion cuts towards zero
	n := float32(whole)
	r := x - float32(n*ln2High)
	r -= float32(n * ln2Low)
	p := float32(1.9875691500e-4)
	p = float32(p*r) + 1.3981999507e-3
	p = float32(p*r) + 8.3334519073e-3
	p = float32(p*r) + 4.1665795894e-2
	p = float32(p*r) + 1.6666665459e-1
	p = float32(p*r) + 5.0000001201e-1
	p = float32(float32(p*r)*r) + r + 1
	return p * math.Float32frombits(uint32(whole+127)<<23)
}

// finite reports whether all of x are numbers.
func finite(x []float32) bool {
	for _, v := range x {
		if v-v != 0 { // NaN and both infinities fail this
			return false
		}
	}
	return true
}
