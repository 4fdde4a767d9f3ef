//! The reports: one file for each form, all made from the same `Report` by functions that do
//! nothing but write text. What several forms need is in `words`, `figures` and `grid`, so that a
//! figure is worked out once and has the same name and the same unit everywhere.

pub mod csv;
pub mod html;
pub mod json;
pub mod table;
pub mod verdict;

mod figures;
mod grid;
mod plot;
mod words;

#[cfg(test)]
pub(crate) mod samples;
