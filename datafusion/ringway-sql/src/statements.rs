//! Splits text into statements.

use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::tokenizer::{Location, Token, Tokenizer};

/// Takes the complete statements from the beginning of a text: each ends with a semicolon that is
/// not part of a string or comment. What follows the last of them stays.
pub fn take_complete(text: &mut String) -> Vec<String> {
    let mut tokens = Vec::new();
    // An error is a string or comment that has no end yet; the tokens before it are there.
    let _ = Tokenizer::new(&GenericDialect {}, text).tokenize_with_location_into_buf(&mut tokens);
    let (mut statements, mut start) = (Vec::new(), 0);
    let (mut chars, mut here) = (text.chars(), Location::new(1, 1));
    for token in tokens.iter().filter(|token| token.token == Token::SemiColon) {
        while here < token.span.end {
            match chars.next() {
                Some('\n') => here = Location::new(here.line + 1, 1),
                Some(_) => here.column += 1,
                None => break,
            }
        }
        let end = text.len() - chars.as_str().len();
        statements.push(text[start..end].to_owned());
        start = end;
    }
    text.drain(..start);
    statements
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_semicolon_ends_a_statement_outside_of_strings() {
        for complete in ["SELECT 1;", "SELECT ';';", "-- ;\nSELECT /* ; */\n 'ä;\n';", ";"] {
            let mut text = complete.to_owned();
            assert_eq!(take_complete(&mut text), [complete]);
            assert_eq!(text, "");
        }
        for open in ["", "SELECT 1", "SELECT ';", "SELECT 1 /* ;", "SELECT 1 -- ;"] {
            let mut text = open.to_owned();
            assert!(take_complete(&mut text).is_empty(), "{open}");
            assert_eq!(text, open);
        }
        let mut text = "SELECT 'ö';SELEC\n2 ; SELECT ';".to_owned();
        assert_eq!(take_complete(&mut text), ["SELECT 'ö';", "SELEC\n2 ;"]);
        assert_eq!(text, " SELECT ';");
    }
}
