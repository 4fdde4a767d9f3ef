//go:build !race

package net

// Without the race detector there is nobody to tell of what the kernel does.

func sending([]byte)  {}
func received([]byte) {}
