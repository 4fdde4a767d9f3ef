//! The reports of a bench: one [`Model`] of the results, and a writer for each format, which only
//! produces text. So every report has the same names, figures and conclusions.

pub mod csv;
pub mod html;
pub mod json;
pub mod terminal;

mod charts;
mod conclusions;
pub mod configuration;
mod model;
mod rows;
mod warnings;

pub use model::Model;

#[cfg(test)]
mod samples;
#[cfg(test)]
mod tests;
