//! The spelling of values in the environment and in files, for serde's attribute `with`.

/// An address with a port as text.
pub(super) mod address {
    use std::net::SocketAddr;

    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Deserialize)]
    #[serde(untagged, expecting = "an IP address and a port, such as `127.0.0.1:9464`")]
    enum Address {
        Text(String),
        Number(u64),
    }

    pub(in super::super) fn serialize<S: Serializer>(
        address: &Option<SocketAddr>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        address.map(|address| address.to_string()).serialize(serializer)
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<SocketAddr>, D::Error> {
        let text = match Option::<Address>::deserialize(deserializer)? {
            None => return Ok(None),
            Some(Address::Text(text)) => text,
            Some(Address::Number(number)) => number.to_string(),
        };
        let port = text.parse::<u16>().unwrap_or(9464);
        let wrong = |_| {
            D::Error::custom(format!(
                "it must be an IP address and a port, such as `127.0.0.1:{port}`"
            ))
        };
        text.parse().map(Some).map_err(wrong)
    }
}

/// Durations as text, such as `10s`.
pub mod duration {
    use std::fmt;
    use std::time::Duration;

    use serde::de::{Error, Visitor};
    use serde::{Deserializer, Serializer};

    struct Text;

    impl Visitor<'_> for Text {
        type Value = Duration;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a duration such as `500ms`, `10s` or `2m`")
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<Duration, E> {
            humantime::parse_duration(text)
                .map_err(|problem| E::custom(format!("{problem} (write `500ms`, `10s` or `2m`)")))
        }
    }

    /// Writes `1m 30s`.
    pub fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&humantime::format_duration(*duration))
    }

    /// Reads `500ms`, `10s` or `2m`.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        deserializer.deserialize_str(Text)
    }
}

/// Sizes as text, such as `2.0 GiB`, without loss.
pub mod size {
    use bytesize::ByteSize;
    use serde::{Deserialize, Deserializer, Serializer};

    /// Writes a size with the largest unit that shows it exactly.
    pub fn serialize<S: Serializer>(size: &ByteSize, serializer: S) -> Result<S::Ok, S::Error> {
        let short = size.to_string();
        match short.parse() == Ok(*size) {
            true => serializer.serialize_str(&short),
            false => serializer.collect_str(&format_args!("{} B", size.as_u64())),
        }
    }

    /// Reads a text or a number of bytes.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ByteSize, D::Error> {
        ByteSize::deserialize(deserializer)
    }
}

/// Sizes that an option may lack.
pub(super) mod optional_size {
    use bytesize::ByteSize;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(in super::super) fn serialize<S: Serializer>(
        size: &Option<ByteSize>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match size {
            Some(size) => super::size::serialize(size, serializer),
            None => serializer.serialize_none(),
        }
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<ByteSize>, D::Error> {
        Option::deserialize(deserializer)
    }
}

/// Lists that the environment gives as one text, and texts that look like numbers there.
pub mod lenient {
    use std::path::PathBuf;

    use serde::{Deserialize, Deserializer};

    #[derive(Deserialize)]
    #[serde(untagged, expecting = "a text, or a list of texts")]
    enum TextOrList {
        Text(String),
        Number(u64),
        List(Vec<TextOrList>),
    }

    impl TextOrList {
        /// Returns the elements. A text is split at its commas.
        fn elements(self) -> Vec<String> {
            match self {
                TextOrList::Text(text) => text
                    .split(',')
                    .map(|element| element.trim().to_string())
                    .filter(|element| !element.is_empty())
                    .collect(),
                TextOrList::Number(number) => vec![number.to_string()],
                TextOrList::List(list) => {
                    list.into_iter().flat_map(TextOrList::whole_elements).collect()
                }
            }
        }

        /// Returns the elements. A text is one element, whose commas stay.
        fn whole_elements(self) -> Vec<String> {
            match self {
                TextOrList::Text(text) => vec![text],
                other => other.elements(),
            }
        }
    }

    /// Reads a text that may look like a number.
    pub fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
        let value = Option::<TextOrList>::deserialize(deserializer)?;
        Ok(value.map(|value| value.whole_elements().join(",")))
    }

    /// Reads a path. An empty one is none.
    pub fn path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PathBuf>, D::Error> {
        Ok(text(deserializer)?.filter(|path| !path.is_empty()).map(PathBuf::from))
    }

    /// Reads a list, or one text with commas.
    pub fn list<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
        Ok(TextOrList::deserialize(deserializer)?.elements())
    }

    /// Reads a list, or one text with commas, if there is one.
    pub fn optional_list<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Vec<String>>, D::Error> {
        Ok(Option::<TextOrList>::deserialize(deserializer)?.map(TextOrList::elements))
    }
}
