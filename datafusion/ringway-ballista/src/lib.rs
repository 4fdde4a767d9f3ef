//! Ballista with ringway.
