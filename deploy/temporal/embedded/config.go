package embedded

import (
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/surehand/surehand/deploy/temporal/onewriter"
	"github.com/surehand/surehand/deploy/temporal/settings"
	"go.temporal.io/server/common/cluster"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/membership/static"
	"go.temporal.io/server/common/metrics"
	"go.temporal.io/server/common/persistence/sql/sqlplugin/sqlite"
	"go.temporal.io/server/common/primitives"
)

const (
	clusterName     = "active"
	mainStore       = "main"
	visibilityStore = "visibility"

	// sqliteShards: more gave BUSY_SNAPSHOT errors, as SQLite has a single writer
	// whatever is asked for.
	sqliteShards = 1

	// callers is how many transactions may wait for a file at once, to share a
	// commit: all views of one connection (onewriter).
	callers = 64

	// cacheSize is in KiB, negated. SQLite's own 2 MB have pages read again
	// from the file all the time.
	cacheSize = "-65536"

	// listGather is how long the list of workflows, which nobody waits for, has
	// its changes come together. None is acknowledged before it is committed.
	listGather = 100 * time.Millisecond
)

// sqliteFile is how one database file is opened. synchronous=full makes an
// acknowledged start survive a power cut, not only the server's own death. A
// file has one connection, so there are no locks to take with a transaction.
func sqliteFile(path string, gather time.Duration) *config.SQL {
	return &config.SQL{
		PluginName:   sqlite.PluginName,
		DatabaseName: path,
		MaxConns:     callers,
		MaxIdleConns: callers,
		ConnectAttributes: map[string]string{
			"mode":           "rwc",
			"journal_mode":   "wal",
			"synchronous":    "full",
			"temp_store":     "memory",
			"locking_mode":   "exclusive",
			"cache_size":     cacheSize,
			onewriter.Gather: gather.String(),
		},
	}
}

// ports are where the four services of the one process listen.
type ports struct {
	frontend                  netip.AddrPort
	history, matching, worker int
}

// choosePorts settles every port in one go, so that no two get the same one.
func choosePorts(frontend netip.AddrPort) (ports, error) {
	listeners := make([]net.Listener, 0, 4)
	defer func() {
		for _, listener := range listeners {
			_ = listener.Close() // it only held a port; the server listens next
		}
	}()
	numbers := make([]int, 0, 4)
	for _, address := range []string{frontend.String(), "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"} {
		listener, err := net.Listen("tcp", address)
		if err != nil {
			return ports{}, fmt.Errorf("listen on %s (is another server running there? --listen names another address): %w", address, err)
		}
		listeners = append(listeners, listener)
		numbers = append(numbers, listener.Addr().(*net.TCPAddr).Port)
	}
	return ports{
		frontend: netip.AddrPortFrom(frontend.Addr(), uint16(numbers[0])),
		history:  numbers[1], matching: numbers[2], worker: numbers[3],
	}, nil
}

func serverConfig(s settings.Settings, p ports, in stores) *config.Config {
	c := &config.Config{
		Persistence: config.Persistence{
			DefaultStore:     mainStore,
			VisibilityStore:  visibilityStore,
			NumHistoryShards: int32(in.shards),
			DataStores: map[string]config.DataStore{
				mainStore:       {SQL: in.main},
				visibilityStore: {SQL: in.visibility},
			},
		},
		ClusterMetadata: &cluster.Config{
			FailoverVersionIncrement: 10,
			MasterClusterName:        clusterName,
			CurrentClusterName:       clusterName,
			ClusterInformation: map[string]cluster.ClusterInformation{
				clusterName: {Enabled: true, InitialFailoverVersion: 1, RPCAddress: p.frontend.String()},
			},
		},
		DCRedirectionPolicy: config.DCRedirectionPolicy{Policy: "noop"},
		Services: map[string]config.Service{
			string(primitives.FrontendService): {RPC: config.RPC{GRPCPort: int(p.frontend.Port()), BindOnIP: p.frontend.Addr().String()}},
			string(primitives.HistoryService):  {RPC: config.RPC{GRPCPort: p.history, BindOnLocalHost: true}},
			string(primitives.MatchingService): {RPC: config.RPC{GRPCPort: p.matching, BindOnLocalHost: true}},
			string(primitives.WorkerService):   {RPC: config.RPC{GRPCPort: p.worker, BindOnLocalHost: true}},
		},
		Archival: config.Archival{
			History:    config.HistoryArchival{State: "disabled"},
			Visibility: config.VisibilityArchival{State: "disabled"},
		},
		NamespaceDefaults: config.NamespaceDefaults{Archival: config.ArchivalNamespaceDefaults{
			History:    config.HistoryArchivalNamespaceDefaults{State: "disabled"},
			Visibility: config.VisibilityArchivalNamespaceDefaults{State: "disabled"},
		}},
		PublicClient: config.PublicClient{HostPort: p.frontend.String()},
	}
	if s.Metrics.IsValid() {
		c.Global.Metrics = &metrics.Config{Prometheus: &metrics.PrometheusConfig{
			ListenAddress: s.Metrics.String(), HandlerPath: "/metrics",
		}}
	}
	return c
}

// staticHosts tells each service where the others are, without gossip.
func staticHosts(p ports) map[primitives.ServiceName]static.Hosts {
	local := func(port int) static.Hosts {
		return static.SingleLocalHost(fmt.Sprintf("127.0.0.1:%d", port))
	}
	return map[primitives.ServiceName]static.Hosts{
		primitives.FrontendService: static.SingleLocalHost(p.frontend.String()),
		primitives.HistoryService:  local(p.history),
		primitives.MatchingService: local(p.matching),
		primitives.WorkerService:   local(p.worker),
	}
}
