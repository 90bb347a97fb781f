package settings

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	enumspb "go.temporal.io/api/enums/v1"
)

// SearchAttributes maps the name of a custom search attribute to its type.
type SearchAttributes map[string]enumspb.IndexedValueType

// DefaultSearchAttributes are those a handoff's workflow sets.
const DefaultSearchAttributes = "SurehandTenant=Keyword,SurehandModel=Keyword," +
	"SurehandPrefill=Keyword,SurehandDecode=Keyword,SurehandPhase=Keyword," +
	"SurehandOutcome=Keyword,SurehandEpoch=Int"

// columns is how many custom attributes of each type the SQLite store holds:
// too long a list is refused here, not half-way through registering it.
var columns = map[enumspb.IndexedValueType]int{
	enumspb.INDEXED_VALUE_TYPE_BOOL:         3,
	enumspb.INDEXED_VALUE_TYPE_DATETIME:     3,
	enumspb.INDEXED_VALUE_TYPE_DOUBLE:       3,
	enumspb.INDEXED_VALUE_TYPE_INT:          3,
	enumspb.INDEXED_VALUE_TYPE_KEYWORD:      10,
	enumspb.INDEXED_VALUE_TYPE_KEYWORD_LIST: 3,
	enumspb.INDEXED_VALUE_TYPE_TEXT:         3,
}

var attributeName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]{0,63}$`)

// ParseSearchAttributes reads "Name=Type,Name=Type". An empty text is none.
func ParseSearchAttributes(text string) (SearchAttributes, error) {
	attributes := SearchAttributes{}
	used := map[enumspb.IndexedValueType]int{}
	for _, item := range strings.Split(text, ",") {
		if item = strings.TrimSpace(item); item == "" {
			continue
		}
		name, typeName, found := strings.Cut(item, "=")
		if !found || !attributeName.MatchString(name) {
			return nil, fmt.Errorf("search attribute %q is not Name=Type, for example SurehandModel=Keyword", item)
		}
		kind, err := enumspb.IndexedValueTypeFromString(typeName)
		if err != nil || columns[kind] == 0 {
			return nil, fmt.Errorf("search attribute %q: no type %q; types are Keyword, Int, Double, Bool, Datetime, KeywordList, Text", name, typeName)
		}
		if _, twice := attributes[name]; twice {
			return nil, fmt.Errorf("search attribute %q is given twice", name)
		}
		if used[kind]++; used[kind] > columns[kind] {
			return nil, fmt.Errorf("search attribute %q: the SQLite store has columns for %d of type %s only", name, columns[kind], kind)
		}
		attributes[name] = kind
	}
	return attributes, nil
}

// Names lists the attributes in a fixed order.
func (a SearchAttributes) Names() []string {
	return slices.Sorted(maps.Keys(a))
}
