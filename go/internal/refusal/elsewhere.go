//go:build !linux

package refusal

import "syscall"

// New explains errno as the answer to asking for feature: there are only plain system calls.
func New(feature string, errno syscall.Errno) *Refusal {
	return &Refusal{Feature: feature, Errno: errno, Meaning: "this system is not Linux", Mend: "nothing to do: operations work without it"}
}
