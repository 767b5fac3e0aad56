//! The spelling of values in the environment and in files.

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
pub(super) mod duration {
    use std::time::Duration;

    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(in super::super) fn serialize<S: Serializer>(
        duration: &Duration,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&humantime::format_duration(*duration))
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Duration, D::Error> {
        let text = String::deserialize(deserializer)?;
        humantime::parse_duration(&text).map_err(|problem| {
            D::Error::custom(format!("{problem} (write `500ms`, `10s` or `2m`)"))
        })
    }
}

/// Lists that the environment gives as one text, and texts that look like numbers there.
pub(super) mod lenient {
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

    pub(in super::super) fn text<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<String>, D::Error> {
        let value = Option::<TextOrList>::deserialize(deserializer)?;
        Ok(value.map(|value| value.whole_elements().join(",")))
    }

    pub(in super::super) fn path<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<PathBuf>, D::Error> {
        Ok(text(deserializer)?.filter(|path| !path.is_empty()).map(PathBuf::from))
    }

    pub(in super::super) fn list<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<String>, D::Error> {
        Ok(TextOrList::deserialize(deserializer)?.elements())
    }

    pub(in super::super) fn optional_list<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Vec<String>>, D::Error> {
        Ok(Option::<TextOrList>::deserialize(deserializer)?.map(TextOrList::elements))
    }
}
