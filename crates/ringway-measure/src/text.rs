//! Figures as people read them. Every report uses these functions, so a figure looks the same in
//! the table, in the summary and on the page.

/// The width of a terminal.
pub const COLUMNS: usize = 80;

/// Later lines of a paragraph are indented by no more than this.
const MAX_INDENT: usize = 32;

/// Shown where there is no figure.
pub const ABSENT: &str = "–";

/// `1,234,567`.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let groups = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy);
    groups.collect::<Vec<_>>().join(",")
}

/// `1 job`, `3 jobs`.
pub fn plural(n: u64, noun: &str) -> String {
    format!("{} {noun}{}", count(n), if n == 1 { "" } else { "s" })
}

/// `a, b and c`.
pub fn list<S: AsRef<str>>(names: &[S]) -> String {
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    match &names[..] {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [most @ .., last] => format!("{} and {last}", most.join(", ")),
    }
}

/// Three significant digits: `0.123`, `1.23`, `12.3`, `1,234`.
pub fn significant(value: f64) -> String {
    if !value.is_finite() {
        return ABSENT.to_owned();
    }
    // The limits are where rounding would add a digit.
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size < 0.0005 => "<0.001".to_owned(),
        size if size < 0.9995 => format!("{value:.3}"),
        size if size < 9.995 => format!("{value:.2}"),
        size if size < 99.95 => format!("{value:.1}"),
        _ => count(value.round() as u64),
    }
}

/// A rate in few digits: `9,812`, `412 k`, `1.25 M`.
pub fn rate(value: f64) -> String {
    if value < 9_999.5 {
        significant(value)
    } else if value < 999_500.0 {
        format!("{} k", significant(value / 1e3))
    } else {
        format!("{} M", significant(value / 1e6))
    }
}

/// Nanoseconds in a suitable unit: `870 ns`, `81.2 µs`, `5.00 s`.
pub fn nanoseconds(ns: f64) -> String {
    // The limits are where three digits would round up to the next unit.
    if ns < 999.5 {
        format!("{} ns", ns.round())
    } else if ns < 999.5e3 {
        format!("{} µs", significant(ns / 1e3))
    } else if ns < 999.5e6 {
        format!("{} ms", significant(ns / 1e6))
    } else {
        format!("{} s", significant(ns / 1e9))
    }
}

/// `1.32×`; no figure if the divisor is not positive.
pub fn ratio(a: f64, b: f64) -> String {
    let ratio = if b > 0.0 { a / b } else { f64::NAN };
    if (0.005..9.995).contains(&ratio) {
        format!("{ratio:.2}×")
    } else {
        format!("{}×", significant(ratio))
    }
}

/// Text from outside, such as a file name, without control characters: they could change the
/// terminal's state, and neither HTML nor SVG allows them.
pub fn clean(text: &str) -> String {
    let replaced = |c: char| c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}');
    text.chars().map(|c| if replaced(c) { '\u{fffd}' } else { c }).collect()
}

/// A paragraph that begins with `lead`, broken between words into lines that fit a terminal. Later
/// lines are indented to the end of `lead`. Each line has its newline.
pub fn wrap(lead: &str, text: &str) -> String {
    let indent = lead.chars().count().min(MAX_INDENT);
    let mut out = String::new();
    let mut line = lead.to_owned();
    let mut is_empty = true;
    for word in text.split_whitespace() {
        let gap = usize::from(!is_empty);
        let width = line.chars().count() + gap + word.chars().count();
        if width > COLUMNS && line.chars().count() > indent {
            out += line.trim_end();
            out.push('\n');
            line = " ".repeat(indent);
        } else if !is_empty {
            line.push(' ');
        }
        line += word;
        is_empty = false;
    }
    out + line.trim_end() + "\n"
}

/// A list below a title, after an empty line; nothing without items.
pub fn section(title: &str, items: &[String]) -> String {
    match items {
        [] => String::new(),
        items => {
            let list: String = items.iter().map(|item| wrap("  - ", item)).collect();
            format!("\n{title}\n{list}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits_and_a_suitable_unit() {
        for (text, expected) in [
            (nanoseconds(0.0), "0 ns"),
            (nanoseconds(7.0), "7 ns"),
            (nanoseconds(870.0), "870 ns"),
            (nanoseconds(999.6), "1.00 µs"),
            (nanoseconds(81_234.0), "81.2 µs"),
            (nanoseconds(999_700.0), "1.00 ms"),
            (nanoseconds(5e9), "5.00 s"),
            (rate(9_812.4), "9,812"),
            (rate(412_345.0), "412 k"),
            (rate(999_800.0), "1.00 M"),
            (significant(f64::NAN), ABSENT),
            (significant(0.99996), "1.00"),
            (count(1_234_567), "1,234,567"),
            (count(123), "123"),
            (ratio(1.0, 2.0), "0.50×"),
            (ratio(300.0, 2.0), "150×"),
            (ratio(3.0, 0.0), "–×"),
            (list(&["a", "b", "c"]), "a, b and c"),
            (plural(1, "job"), "1 job"),
            (plural(2000, "job"), "2,000 jobs"),
            (clean("a\x1b[2J"), "a\u{fffd}[2J"),
        ] {
            assert_eq!(text, expected);
        }
    }

    #[test]
    fn paragraphs_are_broken_between_words() {
        let words = ["0123456789"; 9].join("  ");
        let text = wrap("  - ", &words);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.iter().map(|line| line.len()).collect::<Vec<_>>(), [69 + 11, 4 + 21]);
        assert!(lines[0].starts_with("  - 0") && lines[1].starts_with("    0"), "{text}");
        assert_eq!(wrap("", ""), "\n");
        assert_eq!(wrap("lead:  ", ""), "lead:\n");
        // A word is never broken.
        let long = "x".repeat(100);
        assert_eq!(wrap("", &format!("a {long} b")), format!("a\n{long}\nb\n"));
        assert_eq!(wrap(&long, "b"), format!("{long}\n{}b\n", " ".repeat(MAX_INDENT)));
    }
}
