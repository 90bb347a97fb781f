package model

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestKernelsSumInOneOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, shape := range [][2]int{{dim, dim}, {vocab, dim}, {dim, hidden}, {kvDim, dim}} {
		m := matrix{shape[0], shape[1], make([]float32, shape[0]*shape[1])}
		const rows = 7 // a group of four and three single ones
		x, y := make([]float32, rows*m.columns), make([]float32, rows*m.rows)
		for _, v := range [][]float32{m.w, x} {
			for i := range v {
				v[i] = float32(rng.NormFloat64())
			}
		}
		m.apply(y, x, rows)
		for r := range rows {
			for o := range m.rows {
				var want float32
				for k := range m.columns {
					want += float32(x[r*m.columns+k] * m.w[o*m.columns+k])
				}
				if y[r*m.rows+o] != want {
					t.Fatalf("%v: row %d output %d is %v, in order %v", shape, r, o, y[r*m.rows+o], want)
				}
			}
		}
	}
}

func TestExpIsAccurateOverItsRange(t *testing.T) {
	for x := float32(0); x > -87; x -= 0.0137 {
		want := math.Exp(float64(x))
		if e := math.Abs(float64(exp(x))-want) / want; e > 3e-7 {
			t.Fatalf("exp(%v) is off by %v", x, e)
		}
	}
	if exp(-1000) != 0 || exp(0) != 1 || !math.IsNaN(float64(exp(float32(math.NaN())))) {
		t.Error("exp at the ends of its range")
	}
}

func TestSquareReluKeepsNaN(t *testing.T) {
	x := []float32{-2, 0, 3, float32(math.NaN())}
	squareRelu(x)
	if x[0] != 0 || x[1] != 0 || x[2] != 9 || !math.IsNaN(float64(x[3])) {
		t.Errorf("got %v", x)
	}
}
