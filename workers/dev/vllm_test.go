package dev

import (
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/surehand/surehand/workers/vllmenv"
)

func TestAnEngineWithAServerHasAFrontThatWaitsForIt(t *testing.T) {
	c := config(t)
	c.Engine, c.Prefill = EngineVLLM, 1
	var asked []seat
	with := programs{self: "/bin/surehand", transferd: "/bin/transferd", temporal: "/bin/temporal", engine: engines{program: "/bin/surehand",
		server: func(at seat) (Spec, []string, error) {
			asked = append(asked, at)
			return Spec{Name: "vllm-" + at.id, Path: "/bin/python"}, []string{"--url", "http://" + at.listen}, nil
		}}}
	p := planned(t, c, with)
	specs := map[string]Spec{}
	for _, s := range p.specs {
		specs[s.Name] = s
	}
	if len(asked) != 2 || asked[0].id != "p1" || asked[1].role != "decode" || filepath.Dir(asked[0].front) != filepath.Dir(asked[0].daemon) {
		t.Fatalf("%+v", asked)
	}
	if got := specs["vllm-d1"].Needs; !slices.Equal(got, []string{"transferd-d1"}) {
		t.Errorf("the server needs %v", got)
	}
	front := specs["d1"]
	if !slices.Contains(front.Needs, "vllm-d1") || front.Args[0] != "vllm" || slices.Contains(front.Args, "--transferd-socket") ||
		!strings.Contains(strings.Join(front.Args, " "), "--url http://"+asked[1].listen) {
		t.Errorf("%+v", front)
	}
}

func TestBlocksAreNotForVLLM(t *testing.T) {
	c := config(t)
	c.EngineArgs = []string{"--blocks", "7"}
	if _, err := vllm(t.Context(), c, places{out: io.Discard}); err == nil || !strings.Contains(err.Error(), "--blocks") {
		t.Error(err)
	}
}

func TestAProcessThatSaysNothingIsReadyOnceItsHealthAnswers(t *testing.T) {
	var looks atomic.Int32
	health := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if looks.Add(1) < 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer health.Close()
	s := newSpawner()
	defer s.close()
	r, err := begin(s, Spec{Name: "silent", Path: "/bin/sleep", Args: []string{"60"}, Health: health.URL}, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	<-r.ready
	if looks.Load() < 3 {
		t.Error("ready before its health said so")
	}
	if err := r.send(syscall.SIGKILL); err != nil {
		t.Error(err)
	}
	<-r.done
}

func TestAModelOfVLLMIsTheRandomOneOrAFolderThatIsNamed(t *testing.T) {
	env := vllmenv.Env{Model: "/cache/model"}
	for asked, want := range map[string]vllmModel{
		"tiny":         {"/cache/model", "tiny", "It is a truth universally acknowledged, that a single man"},
		"/models/some": {"/models/some", "some", venice},
	} {
		c := config(t)
		c.Model = asked
		if got, err := c.vllmModel(t.Context(), env, io.Discard); err != nil || got != want {
			t.Errorf("%q: %+v, %v", asked, got, err)
		}
	}
}
