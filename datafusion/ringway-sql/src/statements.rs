//! Splits what a user types into complete statements.

use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};

/// Whether a text ends with a complete statement: its last token is a semicolon, which is not part
/// of a string or comment that goes on.
pub fn is_complete(text: &str) -> bool {
    let Ok(tokens) = Tokenizer::new(&GenericDialect {}, text).tokenize() else {
        // A string or comment that has no end yet.
        return false;
    };
    let last = tokens.iter().rev().find(|token| !matches!(token, Token::Whitespace(_)));
    last == Some(&Token::SemiColon)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_semicolon_ends_a_statement_outside_of_strings() {
        for complete in ["SELECT 1;", "SELECT ';';  -- done\n", "SELECT 1; SELECT 2;\n", ";"] {
            assert!(is_complete(complete), "{complete}");
        }
        for open in ["", "SELECT 1", "SELECT ';", "SELECT 1 /* ;", "SELECT 1 -- ;", "SELECT 1; S"] {
            assert!(!is_complete(open), "{open}");
        }
    }
}
