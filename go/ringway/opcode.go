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

// pathOp returns the name that package os has for the operation in a PathError.
func (op opcode) pathOp() string {
	if op == opRead {
		return "read"
	}
	return "write"
}
