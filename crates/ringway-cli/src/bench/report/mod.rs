//! The reports of a bench, all made from the same [`Report`](super::result::Report) by functions
//! that only produce text. `configuration` names what was compared and `figures` compares it, so
//! that every report has the same names and the same conclusions.

pub mod csv;
pub mod html;
pub mod json;
pub mod summary;
pub mod table;

pub mod configuration;
mod figures;

#[cfg(test)]
pub(crate) mod samples;
