package embedded

import (
	"fmt"

	"github.com/surehand/surehand/deploy/temporal/datadir"
	"github.com/surehand/surehand/deploy/temporal/settings"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/headers"
	"go.temporal.io/server/schema/sqlite"
	"google.golang.org/protobuf/types/known/durationpb"
)

// made is what this binary's schema is known by.
func made() datadir.Made {
	return datadir.Made{
		Server:     headers.ServerVersion,
		Schema:     sqlite.Version,
		Visibility: sqlite.VisibilityVersion,
		Shards:     shards,
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
