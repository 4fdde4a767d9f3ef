//! The configuration of the service as data, for programs that build operators from maps and URIs.

use crate::RingwayFs;
use opendal_core::{Configurator, Error, ErrorKind, OperatorUri, Result};
use serde::{Deserialize, Serialize};

/// What survives a power failure once a write, a copy, a rename or a deletion has succeeded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Durability {
    /// Nothing for certain. An object that was written shortly before may be there with a part of
    /// its content.
    None,
    /// An object that is there has its content: it is synced before it gets its name. Whether the
    /// name is there is not certain. This is what `services-fs` does.
    #[default]
    Content,
    /// Everything: directories are synced as well, up to the root. Whether the root itself survives
    /// is up to whoever created it.
    Full,
}

/// OpenDAL's maps and URIs have strings as values.
impl TryFrom<String> for Durability {
    type Error = Error;

    fn try_from(value: String) -> Result<Self> {
        match value.as_str() {
            "none" => Ok(Self::None),
            "content" => Ok(Self::Content),
            "full" => Ok(Self::Full),
            _ => {
                let message = "durability is none of \"none\", \"content\" and \"full\"";
                Err(Error::new(ErrorKind::ConfigInvalid, message).with_context("value", value))
            }
        }
    }
}

impl From<Durability> for String {
    fn from(durability: Durability) -> Self {
        match durability {
            Durability::None => "none",
            Durability::Content => "content",
            Durability::Full => "full",
        }
        .to_owned()
    }
}

/// The configuration of [`RingwayFs`] as data. The engine is not part of it.
///
/// ```
/// use opendal_core::Configurator;
/// use ringway_opendal::{Durability, RingwayFsConfig};
/// let options = [("root", "/srv/data"), ("durability", "full")];
/// let options = options.map(|(key, value)| (key.to_owned(), value.to_owned()));
/// let config = RingwayFsConfig::from_iter(options)?;
/// assert_eq!(config.root.as_deref(), Some("/srv/data"));
/// assert_eq!(config.durability, Durability::Full);
/// # Ok::<(), opendal_core::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct RingwayFsConfig {
    /// See [`RingwayFs::root`].
    pub root: Option<String>,
    /// See [`RingwayFs::atomic_write_dir`].
    pub atomic_write_dir: Option<String>,
    /// See [`RingwayFs::durability`].
    pub durability: Durability,
}

impl Configurator for RingwayFsConfig {
    type Builder = RingwayFs;

    fn from_uri(uri: &OperatorUri) -> Result<Self> {
        let mut options = uri.options().clone();
        if let Some(root) = uri.root().filter(|root| !root.is_empty()) {
            options.entry("root".to_owned()).or_insert_with(|| format!("/{root}"));
        }
        Self::from_iter(options)
    }

    fn into_builder(self) -> Self::Builder {
        RingwayFs::from_config(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_come_from_uris() {
        let options = [("durability", "full"), ("atomic_write_dir", "/tmp/new")];
        let options = options.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let uri = OperatorUri::new("ringway-fs:///srv/data", options).unwrap();
        let config = RingwayFsConfig::from_uri(&uri).unwrap();
        assert_eq!(config.root.as_deref(), Some("/srv/data"));
        assert_eq!(config.atomic_write_dir.as_deref(), Some("/tmp/new"));
        assert_eq!(config.durability, Durability::Full);
        let wrong = [("durability".to_owned(), "some".to_owned())];
        let error = RingwayFsConfig::from_iter(wrong).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConfigInvalid);
    }
}
