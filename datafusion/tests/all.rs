//! All tests of this workspace, in one program: linking DataFusion takes long.

mod ballista;
mod tpch;
