package sim

import (
	"flag"
	"testing"
)

var one = flag.String("sim.case", "", "run one case: \"fault at point; fault at point\"")

func TestOneCase(t *testing.T) {
	if *one == "" {
		t.Skip("no -sim.case")
	}
	c, err := ParseCase(*seed, *one)
	if err != nil {
		t.Fatal(err)
	}
	c.Verbose = true
	t.Log(wantHolds(t, c).Text())
}
