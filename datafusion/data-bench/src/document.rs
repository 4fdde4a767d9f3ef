//! Reports inside a Markdown file, between the lines `<!-- data-bench NAME -->` and
//! `<!-- data-bench end -->`.

use anyhow::Context;
use std::fs;
use std::path::Path;

const END: &str = "<!-- data-bench end -->";

/// Replaces the report of this name.
///
/// # Errors
///
/// A file without these lines; those of reading and writing it.
pub fn replace(path: &Path, name: &str, report: &str) -> anyhow::Result<()> {
    let about = || path.display().to_string();
    let text = fs::read_to_string(path).with_context(about)?;
    let replaced = with_report(&text, name, report)
        .with_context(|| format!("{}: no place for the report {name}", path.display()))?;
    fs::write(path, replaced).with_context(about)
}

fn with_report(text: &str, name: &str, report: &str) -> Option<String> {
    let begin = format!("<!-- data-bench {name} -->\n");
    let (before, rest) = text.split_once(&begin)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{begin}\n{report}\n{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_report_of_the_name_is_replaced() {
        let text = "a\n<!-- data-bench b -->\nold\n<!-- data-bench end -->\nz\n";
        assert_eq!(
            with_report(text, "b", "new\n").unwrap(),
            "a\n<!-- data-bench b -->\n\nnew\n\n<!-- data-bench end -->\nz\n"
        );
        assert_eq!(with_report(text, "c", "new\n"), None);
    }
}
