// Package null lets the benchmark create an engine whose queue completes every operation without
// the kernel. Programs cannot: the package is internal, and neither an option nor an environment
// variable selects that queue.
package null

// NewEngine creates the engine, a *ringway.Engine. It is nil on systems without ringway's queues.
var NewEngine func() (any, error)
