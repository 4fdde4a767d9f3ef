//! Skips that CI does not expect.

/// Prints why a test cannot run here.
///
/// # Panics
///
/// If `CI` is set.
pub fn skip(why: &str) {
    println!("skipped: {why}");
    assert!(std::env::var_os("CI").is_none(), "unexpected skip in CI: {why}");
}
