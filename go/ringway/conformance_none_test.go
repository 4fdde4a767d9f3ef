//go:build linux && !(amd64 || arm64 || loong64 || riscv64)

// What the conformance cases lack on Linux without rings.

package ringway

import "errors"

// engineWithFaults is not called: faults are injected between an engine and its queues.
func engineWithFaults(Options, uint64) (*Engine, error) { return nil, errors.ErrUnsupported }
