package connector

import (
	"reflect"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	enginev1 "github.com/surehand/surehand/contracts/gen/surehand/engine/v1"
	"github.com/surehand/surehand/contracts/layout"
	"github.com/surehand/surehand/contracts/rpc"
)

// What a real vLLM's memory is like goes to the registry, and its transferd has
// taken the same at the attach: both refuse a description that is not the layout's.
func TestEachEngineSaysHowItsMemoryLies(t *testing.T) {
	want := layout.Cache{Name: "kv0", Layers: 4, KVHeads: 2, HeadDim: 32, DType: "float32", Packing: layout.PackedKV, Order: layout.HND}
	for _, id := range []string{"p1", "d1", "d2"} {
		e, err := rig.Engine(id)
		must(t, err)
		at, err := e.Describe(within(t))
		must(t, err)
		conn, err := grpc.NewClient(at.Address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		must(t, err)
		d, err := enginev1.NewEngineClient(conn).Describe(within(t), &enginev1.DescribeRequest{})
		must(t, err)
		must(t, conn.Close())
		got, err := rpc.DecodeLayout(d.GetDescribed())
		must(t, err)
		if is := got.Layout.Fingerprint(); string(is[:]) != string(d.GetLayout()) {
			t.Errorf("%s describes %s and names %x", id, is, d.GetLayout())
		}
		if len(got.Layout.Caches) != 1 || got.Layout.Caches[0].Interior == "" || !reflect.DeepEqual(got.Model.Heads, []uint32{2}) {
			t.Fatalf("%s: %+v", id, got)
		}
		want.Interior = got.Layout.Caches[0].Interior // of engine, version and machine
		if got.Layout.BlockTokens != block || got.Layout.Caches[0] != want {
			t.Errorf("%s: %+v, want %+v", id, got.Layout, want)
		}
	}
}
