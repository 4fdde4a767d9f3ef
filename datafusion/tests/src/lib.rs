//! What the tests of this workspace share: TPC-H's data and queries, sessions on either store, and
//! answers in a form that can be compared.

pub mod answer;
pub mod files;
pub mod session;
pub mod tpch;
pub mod user;

pub use answer::Answer;
