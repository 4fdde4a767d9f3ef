//! The command line of a program that `cargo bench` starts: words, each in its place.

use std::str::FromStr;

/// The words of a command line.
#[derive(Clone, Debug)]
pub struct Arguments(Vec<String>);

impl Arguments {
    /// Those of this process, without the options that cargo adds.
    pub fn of_process() -> Self {
        Self(std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect())
    }

    /// The word in this place, if there is one.
    pub fn word(&self, at: usize) -> Option<&str> {
        self.0.get(at).map(String::as_str)
    }

    /// The number in this place, or the default.
    ///
    /// # Panics
    ///
    /// The word is no such number.
    pub fn number<T: FromStr>(&self, at: usize, default: T) -> T {
        let parse = |word: &str| {
            word.parse().unwrap_or_else(|_| panic!("argument {}: {word} is no number", at + 1))
        };
        self.word(at).map_or(default, parse)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_has_a_default() {
        let arguments = Arguments(vec!["cold".into(), "16".into()]);
        assert_eq!((arguments.word(0), arguments.word(2)), (Some("cold"), None));
        assert_eq!((arguments.number(1, 256), arguments.number(2, 5)), (16, 5));
    }
}
