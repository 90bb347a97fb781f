package model

// The kernels. Every output element is one sum over ascending k, each product
// rounded before it is added: float32(a*b) forbids fusing. The three loops
// below differ only in how many sums they carry at once, so a row's result
// does not depend on its neighbours.

// matrix is a weight matrix, one row of columns per output.
type matrix struct {
	rows, columns int
	w             []float32
}

func (m *matrix) row(o int) []float32 { return m.w[o*m.columns : (o+1)*m.columns] }

// apply sets y[r][o] = Σk x[r][k]·w[o][k] for n rows.
func (m *matrix) apply(y, x []float32, n int) {
	r := 0
	for ; r+4 <= n; r += 4 {
		m.applyFour(y[r*m.rows:], x[r*m.columns:])
	}
	for ; r < n; r++ {
		m.applyOne(y[r*m.rows:(r+1)*m.rows], x[r*m.columns:(r+1)*m.columns])
	}
}

// applyFour computes four rows, two outputs at a time: eight sums.
func (m *matrix) applyFour(y, x []float32) {
	n := m.columns
	x0, x1, x2, x3 := x[:n], x[n:2*n], x[2*n:3*n], x[3*n:4*n]
	y0, y1, y2, y3 := y[:m.rows], y[m.rows:2*m.rows], y[2*m.rows:3*m.rows], y[3*m.rows:4*m.rows]
	for o := 0; o+2 <= m.rows; o += 2 {
		u, v := m.row(o), m.row(o+1)
		u, v = u[:len(x0)], v[:len(x0)]
		x1, x2, x3 = x1[:len(x0)], x2[:len(x0)], x3[:len(x0)]
		var a0, a1, a2, a3, b0, b1, b2, b3 float32
		for k := range x0 {
			p, q := u[k], v[k]
			a0 += float32(p * x0[k])
			b0 += float32(q * x0[k])
			a1 += float32(p * x1[k])
			b1 += float32(q * x1[k])
			a2 += float32(p * x2[k])
			b2 += float32(q * x2[k])
			a3 += float32(p * x3[k])
			b3 += float32(q * x3[k])
		}
		y0[o], y1[o], y2[o], y3[o] = a0, a1, a2, a3
		y0[o+1], y1[o+1], y2[o+1], y3[o+1] = b0, b1, b2, b3
	}
}

// applyOne computes one row, eight outputs at a time.
func (m *matrix) applyOne(y, x []float32) {
	o := 0
	for ; o+8 <= m.rows; o += 8 {
		w0, w1, w2, w3 := m.row(o), m.row(o+1), m.row(o+2), m.row(o+3)
		w4, w5, w6, w7 := m.row(o+4), m.row(o+5), m.row(o+6), m.row(o+7)
		w0, w1, w2, w3 = w0[:len(x)], w1[:len(x)], w2[:len(x)], w3[:len(x)]
		w4, w5, w6, w7 = w4[:len(x)], w5[:len(x)], w6[:len(x)], w7[:len(x)]
		var a0, a1, a2, a3, a4, a5, a6, a7 float32
		for k, v := range x {
			a0 += float32(w0[k] * v)
			a1 += float32(w1[k] * v)
			a2 += float32(w2[k] * v)
			a3 += float32(w3[k] * v)
			a4 += float32(w4[k] * v)
			a5 += float32(w5[k] * v)
			a6 += float32(w6[k] * v)
			a7 += float32(w7[k] * v)
		}
		y[o], y[o+1], y[o+2], y[o+3] = a0, a1, a2, a3
		y[o+4], y[o+5], y[o+6], y[o+7] = a4, a5, a6, a7
	}
	for ; o < m.rows; o++ {
		var a float32
		for k, w := range m.row(o) {
			a += float32(w * x[k])
		}
		y[o] = a
	}
}
