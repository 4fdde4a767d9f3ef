//! Nothing: a package needs a target.
