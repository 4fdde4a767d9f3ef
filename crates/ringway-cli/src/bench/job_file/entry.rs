//! One line of a job file, and the types of its value.

use super::JobFileError;
use crate::bench::plan::Plan;
use crate::bench::workload::{Access, Amount, MAX_FILE, MAX_REQUEST};
use clap::ValueEnum;
use ringway_measure::units::{parse_duration, parse_size};
use std::ops::RangeInclusive;
use std::time::Duration;

type Result<T> = std::result::Result<T, JobFileError>;

/// One `key=value` line, or a key alone.
pub(super) struct Entry<'a, 'n> {
    pub(super) line: usize,
    pub(super) key: &'a str,
    pub(super) value: Option<&'a str>,
    plan: &'n mut Plan,
}

impl<'a, 'n> Entry<'a, 'n> {
    pub(super) fn new(content: &'a str, line: usize, plan: &'n mut Plan) -> Self {
        let (key, value) = match content.split_once('=') {
            Some((key, value)) => (key.trim_end(), Some(value.trim_start())),
            None => (content, None),
        };
        Self { line, key, value, plan }
    }

    pub(super) fn error(&self, message: String) -> JobFileError {
        JobFileError { line: self.line, key: Some(self.key.to_owned()), message }
    }

    pub(super) fn refuse(&self, value: &str, accepted: &str) -> JobFileError {
        self.error(format!("`{value}` is not accepted; {accepted}"))
    }

    pub(super) fn differs(&mut self, how: &str) {
        self.plan.differences.push(format!("line {}: `{}`: {how}", self.line, self.key));
    }

    pub(super) fn text(&self) -> Result<&'a str> {
        match self.value {
            None => Err(self.error("`=` and a value are missing".to_owned())),
            Some("") => Err(self.error("there is no value after `=`".to_owned())),
            Some(value) if value.contains("${") => {
                Err(self.refuse(value, "environment variables are not substituted"))
            }
            Some(value) => Ok(value),
        }
    }

    pub(super) fn number(&mut self, range: RangeInclusive<u64>) -> Result<u64> {
        let text = self.text()?;
        self.number_in(text, range)
    }

    pub(super) fn small(&mut self, range: RangeInclusive<u32>) -> Result<u32> {
        // The range ends at `u32::MAX`, so nothing is lost.
        Ok(self.number((*range.start()).into()..=(*range.end()).into())? as u32)
    }

    /// The number in a part of the value.
    fn number_in(&mut self, text: &str, range: RangeInclusive<u64>) -> Result<u64> {
        let Some(number) = parse_size(text).filter(|number| range.contains(number)) else {
            let (min, max) = (range.start(), range.end());
            let hint = if text.ends_with('%') {
                "a percentage is not supported here; "
            } else if text.contains([',', ':']) || text.trim_start_matches('-').contains('-') {
                "ranges and separate values for reads and writes are not supported; "
            } else {
                ""
            };
            let accepted = format!(
                "{hint}give a whole number from {min} to {max}, such as 4096, 4k or 0x1000 \
                 (k, m, g, t and p are powers of 1024)"
            );
            return Err(self.refuse(text, &accepted));
        };
        if text.to_ascii_lowercase().ends_with("ib") {
            self.differs(&format!("`{text}` is {number}; in fio this unit is a power of 1000"));
        }
        Ok(number)
    }

    pub(super) fn amount(&mut self, min: u64) -> Result<Amount> {
        let text = self.text()?;
        let Some(percent) = text.strip_suffix('%') else {
            return self.number(min..=MAX_FILE).map(Amount::Bytes);
        };
        match percent.parse::<u8>() {
            Ok(percent) if (min..=100).contains(&percent.into()) => Ok(Amount::Percent(percent)),
            _ => Err(self.refuse(text, "give a whole number of percent, at most 100, or bytes")),
        }
    }

    /// `4k-16k`: the sizes from the first to the last, which is a multiple of it.
    pub(super) fn range(&mut self) -> Result<(u64, u64)> {
        let text = self.text()?;
        let Some((least, largest)) = text.split_once('-') else {
            return Err(self.refuse(text, "give the smallest and the largest size, such as 4k-16k"));
        };
        let least = self.number_in(least, 1..=MAX_REQUEST)?;
        let largest = self.number_in(largest, least..=MAX_REQUEST)?;
        if !largest.is_multiple_of(least) {
            return Err(self.refuse(text, "the largest size must be a multiple of the smallest"));
        }
        Ok((least, largest))
    }

    /// `4k/60:64k/40`: sizes and their shares in percent. Sizes without a share divide the rest.
    pub(super) fn split(&mut self) -> Result<Vec<(u64, u8)>> {
        let text = self.text()?;
        let mut sizes = Vec::new();
        for part in text.split(':') {
            let (size, share) = part.split_once('/').unwrap_or((part, ""));
            let size = self.number_in(size, 1..=MAX_REQUEST)?;
            let share = (!share.is_empty()).then(|| self.number_in(share, 0..=100)).transpose()?;
            sizes.push((size, share));
        }
        let given: u64 = sizes.iter().filter_map(|(_, share)| *share).sum();
        let open = sizes.iter().filter(|(_, share)| share.is_none()).count() as u64;
        if given > 100 || (open == 0 && given < 100) {
            return Err(self.refuse(text, "the percentages must add up to 100"));
        }
        let least = sizes.iter().map(|(size, _)| *size).min().unwrap_or(1);
        if sizes.iter().any(|(size, _)| !size.is_multiple_of(least)) {
            return Err(self.refuse(text, "all sizes must be multiples of the smallest"));
        }
        let (each, mut rest) = ((100 - given) / open.max(1), (100 - given) % open.max(1));
        let share = |(size, share): (u64, Option<u64>)| {
            let extra = u64::from(share.is_none() && rest > 0);
            rest -= extra;
            // A share is at most 100, so nothing is lost.
            (size, share.unwrap_or(each + extra) as u8)
        };
        Ok(sizes.into_iter().map(share).collect())
    }

    /// A whole number of a unit, which is `default` (called `name`) if none is given.
    pub(super) fn time(&self, default: &str, name: &str) -> Result<Duration> {
        let text = self.text()?;
        parse_duration(text, default).filter(|_| !text.contains('.')).ok_or_else(|| {
            let accepted = format!(
                "give a whole number of {name} or one with a unit: us, ms, s, m (minutes), h or d"
            );
            self.refuse(text, &accepted)
        })
    }

    /// One of these names.
    pub(super) fn choice<T: Copy>(&self, choices: &[(&str, T)]) -> Result<T> {
        let text = self.text()?;
        if let Some((_, choice)) = choices.iter().find(|(name, _)| *name == text) {
            return Ok(*choice);
        }
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        Err(self.refuse(text, &one_of(text, &names)))
    }

    pub(super) fn access(&self) -> Result<Access> {
        let text = self.text()?;
        Access::from_str(text, false).map_err(|_| {
            let names: Vec<&str> =
                Access::value_variants().iter().map(|access| access.name()).collect();
            self.refuse(text, &one_of(text, &names))
        })
    }

    /// Names separated by colons; `\:` is a colon in a name. Empty names are skipped, as in fio.
    pub(super) fn names(&self) -> Result<Vec<String>> {
        let text = self.text()?;
        let mut names = vec![String::new()];
        for character in text.chars() {
            let name = names.last_mut().expect("there is always a name");
            match character {
                ':' if name.ends_with('\\') => {
                    name.pop();
                    name.push(':');
                }
                ':' => names.push(String::new()),
                character => name.push(character),
            }
        }
        names.retain(|name| !name.is_empty());
        if names.is_empty() {
            return Err(self.refuse(text, "give a path, or several separated by `:`"));
        }
        Ok(names)
    }
}

/// What is accepted instead of a value.
fn one_of(value: &str, accepted: &[&str]) -> String {
    let list = match accepted {
        [first, second] => format!("give {first} or {second}"),
        _ => format!("give one of {}", accepted.join(", ")),
    };
    match similar(value, accepted.iter().copied()) {
        Some(name) => format!("did you mean `{name}`? {list}"),
        None => list,
    }
}

/// The name that a misspelt one probably stands for.
pub(super) fn similar<'a>(misspelt: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // `include` has no `=`.
    let word = misspelt.split_whitespace().next()?;
    let misspelt = word.to_lowercase().replace('-', "_");
    let distance = |name: &str| strsim::osa_distance(&misspelt, name);
    let nearest = names.min_by_key(|name| distance(name))?;
    // A third of the letters may be wrong.
    (distance(nearest) * 3 <= nearest.len()).then_some(nearest)
}
