// Package null lets the benchmark have an engine whose operations no kernel carries out. A program cannot: the package is
// internal, and no option and no environment variable selects that engine.
package null

// NewEngine makes such an engine, a *ringway.Engine. It is nil where package ringway has no queues.
var NewEngine func() (any, error)
