package model

// attend computes one query row over n keys, oldest first, the last one being
// the row itself: out = softmax(q·K - slope·distance)·V. k and v hold kvDim
// floats a key. scores has room for groupHeads a key.
func attend(out, q, k, v []float32, n int, slope *[heads]float32, scores []float32) {
	const group = groupHeads * headDim
	for kv := range kvHeads {
		g := (*[group]float32)(q[kv*group:])
		bias := (*[groupHeads]float32)(slope[kv*groupHeads:])
		mixed := (*[group]float32)(out[kv*group:])
		peak := score(scores, g, k[kv*headDim:], n, bias)
		sum := weigh(scores[:n*groupHeads], &peak)
		mix(mixed, scores, v[kv*headDim:], n)
		for i := range mixed {
			mixed[i] /= sum[i/headDim]
		}
	}
}

// slopes are the linear biases of the paged layers, one per query head: a key
// d positions back loses slope·d. They hold beyond the lengths trained on. The
// ring's layer has none, it has rotations.
var (
	slopes = [heads]float32{1. / 2, 1. / 4, 1. / 8, 1. / 16, 1. / 32, 1. / 64, 1. / 128, 1. / 256}
	flat   [heads]float32
)

// score writes q·k/√d - slope·distance for each key, four heads at once, and
// returns each head's greatest. 0.25 is headDim^-½, exactly.
func score(to []float32, q *[groupHeads * headDim]float32, keys []float32, n int,
	slope *[groupHeads]float32) (peak [groupHeads]float32) {
	q0, q1 := (*[headDim]float32)(q[:]), (*[headDim]float32)(q[headDim:])
	q2, q3 := (*[headDim]float32)(q[2*headDim:]), (*[headDim]float32)(q[3*headDim:])
	peak = [groupHeads]float32{-1e30, -1e30, -1e30, -1e30}
	for i := range n {
		k := (*[headDim]float32)(keys[i*kvDim:])
		var a0, a1, a2, a3 float32
		for d, v := range k {
			a0 += float32(q0[d] * v)
			a1 += float32(q1[d] * v)
			a2 += float32(q2[d] * v)
			a3 += float32(q3[d] * v)
		}
		distance := float32(n - 1 - i)
		row := (*[groupHeads]float32)(to[i*groupHeads:])
		row[0] = float32(a0*0.25) - float32(slope[0]*distance)
		row[1] = float32(a1*0.25) - float32(slope[1]*distance)
		row[2] = float32(a2*0.25) - float32(slope[2]*distance)
		row[3] = float32(a3*0.25) - float32(slope[3]*distance)
		for h, v := range row {
			if v > peak[h] {
				peak[h] = v
			}
		}
	}
	return peak
}

// weigh turns scores into unnormalised weights and returns each head's sum.
func weigh(scores []float32, peak *[groupHeads]float32) (sum [groupHeads]float32) {
	for ; len(scores) >= groupHeads; scores = scores[groupHeads:] {
		row := (*[groupHeads]float32)(scores)
		for h, v := range row {
			row[h] = exp(v - peak[h])
			sum[h] += row[h]
		}
	}
	return sum
}

// mix sets out to the weighted sum of the values, two dimensions of four heads
// at a time: eight sums.
func mix(out *[groupHeads * headDim]float32, weights, values []float32, n int) {
	for d := 0; d < headDim; d += 2 {
		var a0, a1, a2, a3, b0, b1, b2, b3 float32
		for i := range n {
			w := (*[groupHeads]float32)(weights[i*groupHeads:])
			two := (*[2]float32)(values[i*kvDim+d:])
			x, y := two[0], two[1]
			a0 += float32(w[0] * x)
			b0 += float32(w[0] * y)
			a1 += float32(w[1] * x)
			b1 += float32(w[1] * y)
			a2 += float32(w[2] * x)
			b2 += float32(w[2] * y)
			a3 += float32(w[3] * x)
			b3 += float32(w[3] * y)
		}
		out[d], out[d+1] = a0, b0
		out[headDim+d], out[headDim+d+1] = a1, b1
		out[2*headDim+d], out[2*headDim+d+1] = a2, b2
		out[3*headDim+d], out[3*headDim+d+1] = a3, b3
	}
}
