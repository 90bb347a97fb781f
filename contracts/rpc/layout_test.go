package rpc

import (
	"math/rand"
	"reflect"
	"testing"

	"github.com/surehand/surehand/contracts/layout"
	"github.com/surehand/surehand/contracts/layout/layouttest"
)

func TestALayoutComesBackAsItWent(t *testing.T) {
	rng := rand.New(rand.NewSource(1))
	for range 50 {
		l, _, m := layouttest.Pair(rng.Intn)
		want := layout.Described{Layout: l, Model: m}
		b, err := EncodeLayout(want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodeLayout(b)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%+v, %v; want %+v", got, err, want)
		}
	}
}

func FuzzLayout(f *testing.F) {
	l, _, m := layouttest.Pair(rand.New(rand.NewSource(1)).Intn)
	b, err := EncodeLayout(layout.Described{Layout: l, Model: m})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := DecodeLayout(b)
		if err != nil {
			return
		}
		if err := d.Layout.Validate(); err != nil {
			t.Fatal(err)
		}
		if r, err := layout.Plan(d.Layout, d.Layout, d.Model); err == nil && d.Layout.Whole("m", 1).Validate() == nil {
			r.For(1).Parts(0, nil)
		}
	})
}
