package main

import (
	"strings"
	"testing"
)

func TestANiceLevelThatIsNoneIsRefusedByItsName(t *testing.T) {
	for _, c := range []struct {
		flag  int
		given bool
		env   string
		want  int
		says  string
	}{
		{defaultNice, false, "", defaultNice, ""},
		{defaultNice, false, "0", 0, ""},
		{7, true, "3", 7, ""},
		{20, true, "", 0, "--nice 20"},
		{-1, true, "", 0, "--nice -1"},
		{defaultNice, false, "20", 0, "$SUREHAND_TEMPORAL_NICE 20"},
		{defaultNice, false, "low", 0, `$SUREHAND_TEMPORAL_NICE "low"`},
	} {
		t.Setenv(niceVariable, c.env)
		got, err := niceLevel(c.flag, c.given)
		if got != c.want || (err != nil) != (c.says != "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %d, %v", c, got, err)
		}
	}
}
