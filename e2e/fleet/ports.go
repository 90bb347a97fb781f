package fleet

import (
	"fmt"

	"github.com/surehand/surehand/workers/port"
)

// address is a loopback address that was free a moment ago and that no other
// call gets, in any process.
func address() (string, error) {
	n, err := port.Free()
	return fmt.Sprintf("127.0.0.1:%d", n), err
}
