//! Sizes and times as users write them, on command lines and in fio job files alike.

use std::time::Duration;

/// A size in bytes, or another whole number: decimal with an optional unit (`k`, `m`, `g`, `t` or
/// `p`, also as `kb`, `ki` or `kib`), or hexadecimal (`0x1000`). All units are powers of 1024.
pub fn parse_size(text: &str) -> Option<u64> {
    let text = text.to_ascii_lowercase();
    if let Some(digits) = text.strip_prefix("0x") {
        // `from_str_radix` alone accepts a sign.
        let is_hex = digits.starts_with(|c: char| c.is_ascii_hexdigit());
        return u64::from_str_radix(digits, 16).ok().filter(|_| is_hex);
    }
    let (digits, unit) = split_unit(&text);
    let exponent = match unit {
        "" | "b" => 0,
        "k" | "kb" | "ki" | "kib" => 1,
        "m" | "mb" | "mi" | "mib" => 2,
        "g" | "gb" | "gi" | "gib" => 3,
        "t" | "tb" | "ti" | "tib" => 4,
        "p" | "pb" | "pi" | "pib" => 5,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << (10 * exponent))
}

/// A time: `200ms`, `1.5s`, `2m`. The units are `us`, `ms`, `s`, `m`, `h` and `d`, and fio's
/// `usec`, `msec` and `sec`; a number without a unit has `default_unit`.
pub fn parse_duration(text: &str, default_unit: &str) -> Option<Duration> {
    let text = text.to_ascii_lowercase();
    let (number, unit) = split_unit(&text);
    let seconds = match if unit.is_empty() { default_unit } else { unit } {
        "us" | "usec" => 1e-6,
        "ms" | "msec" => 1e-3,
        "s" | "sec" => 1.0,
        "m" => 60.0,
        "h" => 3_600.0,
        "d" => 86_400.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(number.parse::<f64>().ok()? * seconds).ok()
}

/// The digits that the text begins with, and what follows them.
fn split_unit(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    text.split_at(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units_of_1024_or_are_hexadecimal() {
        for (text, expected) in [
            ("0", Some(0)),
            ("007", Some(7)),
            ("4096", Some(4096)),
            ("4096b", Some(4096)),
            ("4096B", Some(4096)),
            ("4k", Some(4096)),
            ("4K", Some(4096)),
            ("4kb", Some(4096)),
            ("4kB", Some(4096)),
            ("4ki", Some(4096)),
            ("4KiB", Some(4096)),
            ("3m", Some(3 << 20)),
            ("3MB", Some(3 << 20)),
            ("3mi", Some(3 << 20)),
            ("3mib", Some(3 << 20)),
            ("1g", Some(1 << 30)),
            ("1gb", Some(1 << 30)),
            ("1Gi", Some(1 << 30)),
            ("1GiB", Some(1 << 30)),
            ("2t", Some(2 << 40)),
            ("2tb", Some(2 << 40)),
            ("2ti", Some(2 << 40)),
            ("2tib", Some(2 << 40)),
            ("1p", Some(1 << 50)),
            ("1pb", Some(1 << 50)),
            ("1pi", Some(1 << 50)),
            ("1pib", Some(1 << 50)),
            ("0x1000", Some(4096)),
            ("0X1F", Some(31)),
            ("0xb", Some(11)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("16383p", Some(16383 << 50)),
            ("16384p", None),
            ("0x10000000000000000", None),
            ("", None),
            ("k", None),
            ("0x", None),
            ("0x+1", None),
            ("0x10k", None),
            ("-1", None),
            ("+1", None),
            ("1.5k", None),
            ("1 k", None),
            ("1kk", None),
            ("1ib", None),
            ("1e", None),
            ("50%", None),
            ("４k", None),
        ] {
            assert_eq!(parse_size(text), expected, "{text}");
        }
    }

    #[test]
    fn times_have_units_and_may_have_a_fraction() {
        for (text, expected) in [
            ("15s", Some(Duration::from_secs(15))),
            ("15SEC", Some(Duration::from_secs(15))),
            ("500ms", Some(Duration::from_millis(500))),
            ("500msec", Some(Duration::from_millis(500))),
            ("10us", Some(Duration::from_micros(10))),
            ("10usec", Some(Duration::from_micros(10))),
            ("2m", Some(Duration::from_secs(120))),
            ("2M", Some(Duration::from_secs(120))),
            ("1.5m", Some(Duration::from_secs(90))),
            ("1h", Some(Duration::from_secs(3600))),
            ("1d", Some(Duration::from_secs(86_400))),
            ("0s", Some(Duration::ZERO)),
            ("15", Some(Duration::from_secs(15))),
            ("-5s", None),
            ("1e3s", None),
            ("infs", None),
            ("5min", None),
            ("s", None),
            (".", None),
            ("", None),
            ("18446744073709551615s", None),
        ] {
            assert_eq!(parse_duration(text, "s"), expected, "{text}");
        }
        assert_eq!(parse_duration("50", "us"), Some(Duration::from_micros(50)));
    }
}
