//! The reports: one file for each form.

