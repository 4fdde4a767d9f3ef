//! The C handle: what `include/ringway.h` declares, over the queue of `ringway-core`. The header is
//! its documentation.
//!
//! A function here checks what the caller gave, changes it into the core's terms, and the answer
//! back. What the queue does with it is the core's business. Nothing unwinds out of here: a panic,
//! which would be a defect, or a C++ exception out of a callback, ends the program.

mod abi;
mod cancellation;
mod completion;
mod error;
mod files;
mod info;
mod multi_read;
mod opcode;
mod operation;
mod options;
mod queue_handle;
mod records;
mod registration;
