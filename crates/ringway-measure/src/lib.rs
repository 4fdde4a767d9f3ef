//! What `ringway bench`, the side-by-side comparison (`compare/`) and `cargo bench` share: how CPU
//! time is measured, where requests go, and how figures become text, tables, charts and a page.
//!
//! It is internal: it has no stable API. What is measured, and what the figures mean, is for the
//! programs to decide.

pub mod arguments;
pub mod clock;
pub mod machine;
pub mod offsets;
pub mod page;
pub mod pattern;
pub mod plot;
pub mod process;
pub mod random;
pub mod records;
pub mod rounds;
pub mod scratch;
pub mod stats;
pub mod table;
pub mod text;
pub mod units;
pub mod usage;
