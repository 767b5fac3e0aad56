//! Values of options, and how types read them.

use std::fmt::{self, Display};

use serde::de::value::{MapAccessDeserializer, SeqDeserializer};
use serde::de::{
    self, DeserializeSeed, Expected, IntoDeserializer, MapAccess, Unexpected, Visitor,
};
use serde::{Deserialize, forward_to_deserialize_any};
use serde_json::Value;
use serde_json::map::Iter;

/// Values by their names.
pub(super) type Values = serde_json::Map<String, Value>;

/// Reads a struct from values by the names of its fields.
pub(super) fn read<'de, T: Deserialize<'de>>(values: &'de Values) -> Result<T, ReadError> {
    T::deserialize(MapAccessDeserializer::new(Entries { left: values.iter(), last: None }))
}

/// Returns a value as a file or the environment spells it.
pub(super) fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(values) => values.iter().map(text).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

/// The reason why a type can't be read from values.
#[derive(Debug)]
pub(super) struct ReadError {
    /// The names around the value, outermost first.
    pub(super) path: Vec<String>,
    pub(super) problem: Problem,
}

#[derive(Debug)]
pub(super) enum Problem {
    UnknownField(String),
    /// The type can't use the value, for this reason.
    Unusable(String),
}

impl ReadError {
    fn unusable(reason: String) -> ReadError {
        ReadError { path: Vec::new(), problem: Problem::Unusable(reason) }
    }

    fn within(mut self, name: &str) -> ReadError {
        self.path.insert(0, name.into());
        self
    }
}

impl Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.problem {
            Problem::UnknownField(name) => write!(f, "there is no `{name}`"),
            Problem::Unusable(reason) => f.write_str(reason),
        }
    }
}

impl std::error::Error for ReadError {}

impl de::Error for ReadError {
    fn custom<T: Display>(reason: T) -> ReadError {
        ReadError::unusable(reason.to_string())
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> ReadError {
        ReadError::unusable(format!("it must be {expected}, and is {found}"))
    }

    fn invalid_value(_found: Unexpected<'_>, expected: &dyn Expected) -> ReadError {
        ReadError::unusable(format!("it must be {expected}"))
    }

    fn unknown_variant(_found: &str, expected: &'static [&'static str]) -> ReadError {
        ReadError::unusable(format!("it must be one of: {}", expected.join(", ")))
    }

    fn unknown_field(name: &str, _expected: &'static [&'static str]) -> ReadError {
        ReadError { path: Vec::new(), problem: Problem::UnknownField(name.into()) }
    }
}

/// Reads values one after the other, and adds their names to errors.
struct Entries<'de> {
    left: Iter<'de>,
    /// The entry whose name was read last.
    last: Option<(&'de str, &'de Value)>,
}

impl<'de> MapAccess<'de> for Entries<'de> {
    type Error = ReadError;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, ReadError> {
        self.last = self.left.next().map(|(name, value)| (name.as_str(), value));
        self.last.map(|(name, _)| seed.deserialize(name.into_deserializer())).transpose()
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, ReadError> {
        let (name, value) = self.last.take().expect("serde reads a name before each value");
        seed.deserialize(Reader(value)).map_err(|error| error.within(name))
    }
}

/// Reads one value.
struct Reader<'de>(&'de Value);

impl<'de> de::Deserializer<'de> for Reader<'de> {
    type Error = ReadError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match self.0 {
            Value::Null => visitor.visit_unit(),
            Value::Bool(flag) => visitor.visit_bool(*flag),
            Value::Number(number) => match (number.as_u64(), number.as_i64()) {
                (Some(number), _) => visitor.visit_u64(number),
                (_, Some(number)) => visitor.visit_i64(number),
                _ => visitor.visit_f64(number.as_f64().unwrap_or(f64::NAN)),
            },
            Value::String(text) => visitor.visit_borrowed_str(text),
            Value::Array(values) => {
                visitor.visit_seq(SeqDeserializer::new(values.iter().map(Reader)))
            }
            Value::Object(values) => visitor.visit_map(Entries { left: values.iter(), last: None }),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match self.0 {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        visitor.visit_newtype_struct(self)
    }

    /// Reads a text as a variant without values. Options have no other enums.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        match self.0 {
            Value::String(text) => visitor.visit_enum(text.as_str().into_deserializer()),
            _ => self.deserialize_any(visitor),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

impl<'de> IntoDeserializer<'de, ReadError> for Reader<'de> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}
