// The operations that an engine submits.

package ringway

// opcode is what an operation does.
type opcode uint8

const (
	opRead opcode = iota
	opWrite
	opWritev
	opFsync
	opFdatasync
)

// atCurrent is the offset of a transfer at the file's current position.
const atCurrent = -1

// isTransfer reports whether the operation reads or writes, and does not sync.
func (op opcode) isTransfer() bool { return op == opRead || op == opWrite || op == opWritev }

// hasOneBuffer reports whether the operation is no part of a commit, and has one buffer.
func (op opcode) hasOneBuffer() bool { return op == opRead || op == opWrite }

// pathOp returns the name that package os has for the operation in a PathError.
func (op opcode) pathOp() string {
	if op == opRead {
		return "read"
	}
	return "write"
}
