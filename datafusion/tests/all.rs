//! All tests of this workspace, in one program: linking DataFusion takes long.

mod ballista;
mod cancel;
mod faults;
mod formats;
mod plans;
mod register;
mod small_files;
mod tpch;
