//! What the parity with `LocalFileSystem` does not show: the memory of what is read, streams that
//! are dropped, tasks that yield, and errors in the middle.
