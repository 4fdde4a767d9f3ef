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

/// A size as users write it: `4k`, `512`, `1m`.
pub fn size_text(bytes: u64) -> String {
    for (shift, unit) in [(30, "g"), (20, "m"), (10, "k")] {
        if bytes >= 1 << shift && bytes.is_multiple_of(1 << shift) {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    bytes.to_string()
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

    /// Values, and all texts that mean them; the last ones mean nothing.
    #[test]
    fn sizes_have_units_of_1024_or_are_hexadecimal() {
        for (expected, texts) in [
            (Some(0), "0"),
            (Some(7), "007"),
            (Some(11), "0xb"),
            (Some(31), "0X1F"),
            (Some(4096), "4096 4096b 4096B 4k 4K 4kb 4kB 4ki 4KiB 0x1000"),
            (Some(3 << 20), "3m 3MB 3mi 3mib"),
            (Some(1 << 30), "1g 1gb 1Gi 1GiB"),
            (Some(2 << 40), "2t 2tb 2ti 2tib"),
            (Some(1 << 50), "1p 1pb 1pi 1pib"),
            (Some(16383 << 50), "16383p"),
            (Some(u64::MAX), "18446744073709551615"),
            (None, "18446744073709551616 16384p 0x10000000000000000 k 0x 0x+1 0x10k -1 +1 1.5k"),
            (None, "1kk 1ib 1e 50% ４k"),
        ] {
            for text in texts.split(' ') {
                assert_eq!(parse_size(text), expected, "{text}");
            }
        }
        assert_eq!([parse_size(""), parse_size("1 k")], [None, None]);
        let sizes = [512, 4096, 1 << 20, 3 << 30, 1000].map(size_text);
        assert_eq!(sizes, ["512", "4k", "1m", "3g", "1000"]);
    }

    #[test]
    fn times_have_units_and_may_have_a_fraction() {
        for (expected, texts) in [
            (Some(0.0), "0s"),
            (Some(0.000_01), "10us 10usec"),
            (Some(0.5), "500ms 500msec"),
            (Some(15.0), "15 15s 15SEC"),
            (Some(90.0), "1.5m"),
            (Some(120.0), "2m 2M"),
            (Some(3600.0), "1h"),
            (Some(86_400.0), "1d"),
            (None, "-5s 1e3s infs 5min s . 18446744073709551615s"),
        ] {
            for text in texts.split(' ') {
                let expected = expected.map(Duration::from_secs_f64);
                assert_eq!(parse_duration(text, "s"), expected, "{text}");
            }
        }
        assert_eq!(parse_duration("", "s"), None);
        assert_eq!(parse_duration("50", "us"), Some(Duration::from_micros(50)));
    }
}
