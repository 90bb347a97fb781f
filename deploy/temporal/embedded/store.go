package embedded

import (
	"context"
	"errors"
	"fmt"

	"github.com/surehand/surehand/deploy/temporal/datadir"
	"github.com/surehand/surehand/deploy/temporal/settings"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/headers"
	"go.temporal.io/server/schema/sqlite"
	"google.golang.org/protobuf/types/known/durationpb"
)

// openSQLite takes the data directory and makes what is missing in it.
func openSQLite(ctx context.Context, s settings.Settings) (stores, error) {
	waiting, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	dir, err := datadir.Open(waiting, s.DataDir)
	if err != nil {
		return stores{}, err
	}
	if err := dir.Prepare(made(), createSchema(dir.Main(), dir.Visibility())); err != nil {
		return stores{}, errors.Join(err, dir.Close())
	}
	return stores{main: sqliteFile(dir.Main(), 0), visibility: sqliteFile(dir.Visibility(), listGather), shards: sqliteShards, release: dir.Close}, nil
}

// made is what this binary's schema is known by.
func made() datadir.Made {
	return datadir.Made{
		Server:     headers.ServerVersion,
		Schema:     sqlite.Version,
		Visibility: sqlite.VisibilityVersion,
		Shards:     sqliteShards,
	}
}

// createNamespaces makes the namespaces that are missing, search attributes
// included, before the server reads them: a namespace made through the API
// would be known to all four services only after their next refresh. A
// namespace that is there is left as it is.
func createNamespaces(s settings.Settings, main *config.SQL) error {
	missing := make([]*sqlite.NamespaceConfig, 0, len(s.Namespaces))
	for _, name := range s.Namespaces {
		namespace, err := sqlite.NewNamespaceConfig(clusterName, name, false, s.SearchAttributes)
		if err != nil {
			return fmt.Errorf("describe namespace %q: %w", name, err)
		}
		namespace.Detail.Config.Retention = durationpb.New(s.Retention)
		missing = append(missing, namespace)
	}
	if err := sqlite.CreateNamespaces(main, missing...); err != nil {
		return fmt.Errorf("create namespaces: %w", err)
	}
	return nil
}
