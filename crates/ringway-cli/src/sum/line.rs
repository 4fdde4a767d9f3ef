//! A line of a list of checksums, written and read in the formats of coreutils and b3sum.

use super::digest::Algorithm;
use std::borrow::Cow;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// The format of written lines.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Form {
    pub(super) algorithm: Algorithm,
    /// The BSD format, with the name of the digest.
    pub(super) tag: bool,
    /// Lines end with NUL, so names need no escapes.
    pub(super) zero: bool,
}

/// The contents of a line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) algorithm: Algorithm,
    pub(super) hash: Vec<u8>,
    pub(super) path: PathBuf,
    /// The digest was guessed from the length of the hash, which another digest has too.
    pub(super) guessed: bool,
}

/// The names of the digests in tags. The first name of each digest is the written one.
const TAGS: [(&str, Algorithm); 6] = [
    ("BLAKE3", Algorithm::Blake3),
    ("SHA256", Algorithm::Sha256),
    ("CRC32C", Algorithm::Crc32c),
    ("XXH3", Algorithm::Xxh3),
    ("XXH3_64", Algorithm::Xxh3),
    ("SHA2-256", Algorithm::Sha256),
];

/// Distinguishes XXH3 from XXH64, which has the same length; xxhsum writes and requires it.
const XXH3_PREFIX: &str = "XXH3_";

/// Formats a line, including its end.
pub(super) fn write(form: Form, hash: &[u8], name: &[u8]) -> Vec<u8> {
    let escaped = if form.zero { Cow::Borrowed(name) } else { escape(name) };
    let mut line = Vec::new();
    if escaped != name {
        line.push(b'\\');
    }
    if form.tag {
        let tag = TAGS
            .iter()
            .find(|(_, algorithm)| *algorithm == form.algorithm)
            .map_or("", |(tag, _)| tag);
        line.extend_from_slice(tag.as_bytes());
        line.extend_from_slice(b" (");
        line.extend_from_slice(&escaped);
        line.extend_from_slice(b") = ");
        line.extend_from_slice(hex::encode(hash).as_bytes());
    } else {
        if form.algorithm == Algorithm::Xxh3 {
            line.extend_from_slice(XXH3_PREFIX.as_bytes());
        }
        line.extend_from_slice(hex::encode(hash).as_bytes());
        line.extend_from_slice(b"  ");
        line.extend_from_slice(&escaped);
    }
    line.push(if form.zero { 0 } else { b'\n' });
    line
}

/// Parses a line without its end; `None` if it is malformed. A line without a tag has the digest
/// `algorithm`, or else the one with this length of the hash.
pub(super) fn read(line: &[u8], algorithm: Option<Algorithm>, zero: bool) -> Option<Entry> {
    let line = line.trim_ascii_start();
    let (is_escaped, line) = match line.strip_prefix(b"\\") {
        Some(rest) if !zero => (true, rest),
        _ => (false, line),
    };
    let (algorithm, guessed, digits, name) = match tagged(line) {
        Some((algorithm, digits, name)) => (algorithm, false, digits, name),
        None => plain(line, algorithm)?,
    };
    let hash = hex::decode(digits).ok().filter(|hash| hash.len() == algorithm.hash_len())?;
    let name = if is_escaped { unescape(name)? } else { name.to_vec() };
    if name.is_empty() || name.contains(&0) {
        return None;
    }
    Some(Entry { algorithm, hash, path: OsString::from_vec(name).into(), guessed })
}

/// `TAG (name) = digits`, or OpenSSL's `TAG(name)= digits`.
fn tagged(line: &[u8]) -> Option<(Algorithm, &[u8], &[u8])> {
    TAGS.iter().find_map(|(tag, algorithm)| {
        let rest = line.strip_prefix(tag.as_bytes())?;
        let rest = rest.strip_prefix(b" ").unwrap_or(rest).strip_prefix(b"(")?;
        let end = rest.iter().rposition(|byte| *byte == b')')?;
        let digits = rest[end + 1..].trim_ascii().strip_prefix(b"=")?.trim_ascii();
        Some((*algorithm, digits, &rest[..end]))
    })
}

/// `digits  name`, `digits *name` (binary mode) or `digits name` (old BSD).
fn plain(line: &[u8], algorithm: Option<Algorithm>) -> Option<(Algorithm, bool, &[u8], &[u8])> {
    let (prefixed, line) = match line.strip_prefix(XXH3_PREFIX.as_bytes()) {
        Some(rest) => (Some(Algorithm::Xxh3), rest),
        None => (None, line),
    };
    let end = line.iter().position(|byte| matches!(byte, b' ' | b'\t'))?;
    let (digits, name) = (&line[..end], &line[end + 1..]);
    let name = name.strip_prefix(b" ").or(name.strip_prefix(b"*")).unwrap_or(name);
    let (algorithm, guessed) = match (prefixed.or(algorithm), digits.len()) {
        (Some(known), _) => (known, false),
        (None, 64) => (Algorithm::Blake3, true),
        (None, 16) => (Algorithm::Xxh3, false),
        (None, 8) => (Algorithm::Crc32c, false),
        _ => return None,
    };
    Some((algorithm, guessed, digits, name))
}

/// A name with the escapes of coreutils.
pub(super) fn escape(name: &[u8]) -> Cow<'_, [u8]> {
    if !name.iter().any(|byte| matches!(byte, b'\\' | b'\n' | b'\r')) {
        return Cow::Borrowed(name);
    }
    let mut escaped = Vec::with_capacity(name.len() + 8);
    for byte in name {
        match byte {
            b'\\' => escaped.extend_from_slice(br"\\"),
            b'\n' => escaped.extend_from_slice(br"\n"),
            b'\r' => escaped.extend_from_slice(br"\r"),
            byte => escaped.push(*byte),
        }
    }
    Cow::Owned(escaped)
}

fn unescape(name: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = name.iter();
    let mut plain = Vec::with_capacity(name.len());
    while let Some(byte) = bytes.next() {
        plain.push(match byte {
            b'\\' => match bytes.next()? {
                b'\\' => b'\\',
                b'n' => b'\n',
                b'r' => b'\r',
                _ => return None,
            },
            byte => *byte,
        });
    }
    Some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::unix::ffi::OsStrExt;

    const HASH: &str = "00112233445566778899AABBccddeeff00112233445566778899aabbccddeeff";

    fn path_in(line: &str, algorithm: Option<Algorithm>) -> Option<(Algorithm, String)> {
        let entry = read(line.as_bytes(), algorithm, false)?;
        Some((entry.algorithm, entry.path.to_str()?.to_owned()))
    }

    #[test]
    fn the_formats_of_other_programs_are_read() {
        for (line, algorithm, name) in [
            (format!("{HASH}  a b"), Algorithm::Blake3, "a b"),
            (format!("{HASH} *a"), Algorithm::Blake3, "a"),
            (format!("{HASH} a"), Algorithm::Blake3, "a"),
            (format!("  {HASH}  a"), Algorithm::Blake3, "a"),
            (format!("{HASH}   a "), Algorithm::Blake3, " a "),
            (format!("\\{HASH}  a\\\\b\\nc\\r"), Algorithm::Blake3, "a\\b\nc\r"),
            (format!("{HASH}  a\\nb"), Algorithm::Blake3, "a\\nb"),
            (format!("SHA256 (a) = b) = {HASH}"), Algorithm::Sha256, "a) = b"),
            (format!("SHA2-256(a)= {HASH}"), Algorithm::Sha256, "a"),
            ("XXH3 (a) = 0011223344556677".to_owned(), Algorithm::Xxh3, "a"),
            ("XXH3_64 (a) = 0011223344556677".to_owned(), Algorithm::Xxh3, "a"),
            ("XXH3_0011223344556677  a".to_owned(), Algorithm::Xxh3, "a"),
            ("0011223344556677  a".to_owned(), Algorithm::Xxh3, "a"),
            ("00112233  a".to_owned(), Algorithm::Crc32c, "a"),
        ] {
            assert_eq!(path_in(&line, None), Some((algorithm, name.to_owned())), "{line}");
        }
        assert_eq!(
            path_in(&format!("{HASH}  a"), Some(Algorithm::Sha256)).unwrap().0,
            Algorithm::Sha256
        );
    }

    #[test]
    fn malformed_lines_are_refused() {
        let long = format!("{HASH}00  a");
        let (no_name, odd) = (format!("{HASH}  "), format!("{}g  a", &HASH[..63]));
        let (bad_escape, cut_escape) = (format!("\\{HASH}  a\\t"), format!("\\{HASH}  a\\"));
        let lines = [
            "",
            " ",
            "\\",
            "a",
            HASH,
            &long,
            &no_name,
            &odd,
            &bad_escape,
            &cut_escape,
            "BLAKE3 (a = 00",
            "BLAKE3 (",
        ];
        for line in lines {
            assert_eq!(path_in(line, None), None, "{line}");
        }
        assert_eq!(path_in("00112233  a", Some(Algorithm::Sha256)), None);
        assert_eq!(path_in("BLAKE3 (a) = 00112233", None), None);
    }

    fn form() -> impl Strategy<Value = Form> {
        let algorithm = prop_oneof![
            Just(Algorithm::Blake3),
            Just(Algorithm::Sha256),
            Just(Algorithm::Crc32c),
            Just(Algorithm::Xxh3)
        ];
        (algorithm, any::<bool>(), any::<bool>()).prop_map(|(algorithm, tag, zero)| Form {
            algorithm,
            tag,
            zero,
        })
    }

    proptest! {
        #[test]
        fn a_written_line_is_read_back(
            form in form(),
            bytes in proptest::array::uniform32(any::<u8>()),
            name in proptest::collection::vec(
                prop_oneof![1..=255u8, Just(b'\\'), Just(b'\n'), Just(b'\r'), Just(b')')],
                1..20,
            ),
        ) {
            let hash = &bytes[..form.algorithm.hash_len()];
            let line = write(form, hash, &name);
            let (end, line) = line.split_last().unwrap();
            prop_assert_eq!(*end, if form.zero { 0 } else { b'\n' });
            prop_assert!(form.zero || !line.contains(&b'\n'));
            let entry = read(line, Some(form.algorithm), form.zero).unwrap();
            prop_assert_eq!((entry.algorithm, &entry.hash[..]), (form.algorithm, hash));
            prop_assert_eq!(entry.path.as_os_str().as_bytes(), &name[..]);
        }

        #[test]
        fn any_line_is_read_or_refused(
            line in proptest::collection::vec(any::<u8>(), 0..200),
            zero in any::<bool>(),
        ) {
            let _ = read(&line, None, zero);
        }
    }
}
