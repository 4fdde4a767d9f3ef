//! A list of checksums, line by line. A huge file may be given by mistake, so the memory for the
//! file and for each line is bounded.

use super::digest::Algorithm;
use super::line::{self, Entry};
use super::source::{Input, Source, Stream};
use ringway::Block;
use std::io;

/// Longer than any line with a valid file name.
const MAX_LINE: usize = 64 << 10;
/// Bytes read at a time.
const PIECE: usize = 256 << 10;

/// How lines are parsed.
#[derive(Clone, Copy)]
pub(super) struct Rules {
    /// The digest of lines without a tag.
    pub(super) algorithm: Option<Algorithm>,
    /// Lines end with NUL.
    pub(super) zero: bool,
}

/// The number of a malformed line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed(pub(super) u64);

/// An open list.
pub(super) struct List {
    stream: Stream,
    rules: Rules,
    /// The number of lines read.
    number: u64,
    piece: Block,
    /// The bytes of `piece` that have been parsed.
    taken: usize,
    is_last: bool,
}

impl List {
    /// Opens a list.
    ///
    /// # Errors
    ///
    /// Those of opening a file.
    pub(super) async fn open(input: &Input, rules: Rules) -> io::Result<Self> {
        let (source, _) = Source::open(input, false).await?;
        Ok(Self {
            stream: source.into(),
            rules,
            number: 0,
            piece: Block::default(),
            taken: 0,
            is_last: false,
        })
    }

    /// The next line that is neither empty nor a comment; `None` after the last.
    ///
    /// # Errors
    ///
    /// Those of reading.
    pub(super) async fn next(&mut self) -> io::Result<Option<Result<Entry, Malformed>>> {
        while let Some(line) = self.line().await? {
            self.number += 1;
            // Windows ends lines with CR LF.
            let line = line.strip_suffix(b"\r").filter(|_| !self.rules.zero).unwrap_or(&line);
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            let entry = line::read(line, self.rules.algorithm, self.rules.zero);
            return Ok(Some(entry.ok_or(Malformed(self.number))));
        }
        Ok(None)
    }

    /// The next line without its end, truncated to the maximum length.
    async fn line(&mut self) -> io::Result<Option<Vec<u8>>> {
        let end = if self.rules.zero { 0 } else { b'\n' };
        let mut line = Vec::new();
        let mut has_started = false;
        loop {
            let rest = &self.piece[self.taken..];
            has_started |= !rest.is_empty();
            let end = rest.iter().position(|byte| *byte == end);
            let more = &rest[..end.unwrap_or(rest.len())];
            line.extend_from_slice(&more[..more.len().min(MAX_LINE - line.len())]);
            self.taken += end.map_or(rest.len(), |end| end + 1);
            if end.is_some() {
                return Ok(Some(line));
            }
            if self.is_last {
                return Ok(has_started.then_some(line));
            }
            self.piece = self.stream.fill(PIECE).await?;
            self.taken = 0;
            self.is_last = self.piece.len() < PIECE;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    async fn entries(content: &[u8], zero: bool) -> Vec<Result<String, u64>> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("list");
        fs::write(&path, content).unwrap();
        let mut list =
            List::open(&Input::Path(path), Rules { algorithm: None, zero }).await.unwrap();
        let mut entries = Vec::new();
        while let Some(entry) = list.next().await.unwrap() {
            entries.push(
                entry
                    .map(|entry| entry.path.display().to_string())
                    .map_err(|Malformed(number)| number),
            );
        }
        entries
    }

    #[tokio::test]
    async fn lines_are_numbered_and_comments_skipped() {
        let content = b"# a comment\n00112233  a\nnonsense\n\n00112233  b\r\n00112233  c";
        let expected = [Ok("a".into()), Err(3), Ok("b".into()), Ok("c".into())];
        assert_eq!(entries(content, false).await, expected);
        assert_eq!(
            entries(b"00112233  a\n\r\x0000112233  \\", true).await,
            [Ok("a\n\r".into()), Ok("\\".into())]
        );
        assert_eq!(entries(b"", false).await, []);
    }

    #[tokio::test]
    async fn lines_may_cross_pieces_and_have_any_length() {
        let mut content = vec![b'x'; 3 * PIECE + 5];
        content.push(b'\n');
        let mut expected = vec![Err(1)];
        for number in 0..2 * PIECE / 20 {
            content.extend_from_slice(format!("00112233  a name of {number}\n").as_bytes());
            expected.push(Ok(format!("a name of {number}")));
        }
        assert_eq!(entries(&content, false).await, expected);
        // A line that ends where a piece ends.
        content.truncate(2 * PIECE);
        content[2 * PIECE - 1] = b'\n';
        assert_eq!(entries(&content, false).await, [Err(1)]);
    }
}
