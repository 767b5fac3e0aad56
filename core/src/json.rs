//! Reading types from JSON's values: options, statistics, stacks.
//!
//! serde derives a long function for each type and each format that it is read from, so all are
//! read by one reader, which is simpler than that of texts.

use std::fmt::{self, Display};

use serde::de::value::{MapAccessDeserializer, SeqDeserializer};
use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Expected, IntoDeserializer, MapAccess, Unexpected,
    Visitor,
};
use serde::{Deserialize, forward_to_deserialize_any};
use serde_json::Value;
use serde_json::map::Iter;

/// Values by their names.
pub(crate) type Values = serde_json::Map<String, Value>;

/// Reads a struct from values by the names of its fields.
pub(crate) fn read<'de, T: Deserialize<'de>>(values: &'de Values) -> Result<T, ReadError> {
    T::deserialize(MapAccessDeserializer::new(Entries::of(values)))
}

/// Reads a value of any type from JSON. The names in its maps are texts.
///
/// # Errors
/// The text is no JSON, or the type can't be read from it.
#[doc(hidden)]
pub fn read_json<T: DeserializeOwned>(text: &str) -> Result<T, ReadError> {
    let value: Value = serde_json::from_str(text).map_err(de::Error::custom)?;
    T::deserialize(Reader(&value))
}

/// The reason why a type can't be read from values. It is small, because each of serde's functions
/// for a type passes it on.
#[doc(hidden)]
#[derive(Debug)]
pub struct ReadError(pub(crate) Box<Unread>);

#[derive(Debug)]
pub(crate) struct Unread {
    /// The names around the value, outermost first.
    pub(crate) path: Vec<String>,
    pub(crate) problem: Problem,
}

#[derive(Debug)]
pub(crate) enum Problem {
    UnknownField(String),
    /// The type can't use the value, for this reason.
    Unusable(String),
}

impl ReadError {
    fn new(problem: Problem) -> ReadError {
        ReadError(Box::new(Unread { path: Vec::new(), problem }))
    }

    fn unusable(reason: String) -> ReadError {
        ReadError::new(Problem::Unusable(reason))
    }

    fn within(mut self, name: &str) -> ReadError {
        self.0.path.insert(0, name.into());
        self
    }
}

impl Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Unread { path, problem } = &*self.0;
        if !path.is_empty() {
            write!(f, "`{}`: ", path.join("."))?;
        }
        match problem {
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
        ReadError::unusable(format!("it must be {}, and is {}", wanted(expected), given(found)))
    }

    fn invalid_value(_found: Unexpected<'_>, expected: &dyn Expected) -> ReadError {
        ReadError::unusable(format!("it must be {}", wanted(expected)))
    }

    fn unknown_variant(_found: &str, expected: &'static [&'static str]) -> ReadError {
        ReadError::unusable(format!("it must be one of: {}", expected.join(", ")))
    }

    fn unknown_field(name: &str, _expected: &'static [&'static str]) -> ReadError {
        ReadError::new(Problem::UnknownField(name.into()))
    }
}

/// Returns what a value has to be, without the names of Rust's types.
fn wanted(expected: &dyn Expected) -> String {
    match &*expected.to_string() {
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number of 0 or more".into(),
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number".into(),
        "f32" | "f64" => "a number".into(),
        "a boolean" => "`true` or `false`".into(),
        "a string" => "a text".into(),
        other if other.ends_with("parsable string") || other.ends_with("integer or string") => {
            "an amount such as `64MiB`".into()
        }
        other => other.into(),
    }
}

/// Returns what a value is.
fn given(found: Unexpected<'_>) -> String {
    match found {
        Unexpected::Bool(value) => format!("`{value}`"),
        Unexpected::Unsigned(number) => number.to_string(),
        Unexpected::Signed(number) => number.to_string(),
        Unexpected::Float(number) => number.to_string(),
        Unexpected::Str(text) => format!("the text {text:?}"),
        Unexpected::Unit | Unexpected::Option => "nothing".into(),
        Unexpected::Seq => "a list".into(),
        Unexpected::Map => "a table".into(),
        other => other.to_string(),
    }
}

/// Reads values one after the other, and adds their names to errors.
struct Entries<'de> {
    left: Iter<'de>,
    /// The entry whose name was read last.
    last: Option<(&'de String, &'de Value)>,
}

impl<'de> Entries<'de> {
    fn of(values: &'de Values) -> Self {
        Entries { left: values.iter(), last: None }
    }
}

impl<'de> MapAccess<'de> for Entries<'de> {
    type Error = ReadError;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, ReadError> {
        self.last = self.left.next();
        match self.last {
            Some((name, _)) => seed.deserialize(name.as_str().into_deserializer()).map(Some),
            None => Ok(None),
        }
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, ReadError> {
        let (name, value) = self.last.take().expect("serde reads a name before each value");
        match seed.deserialize(Reader(value)) {
            Ok(value) => Ok(value),
            Err(error) => Err(error.within(name)),
        }
    }
}

/// Reads one value. Each type has its own copy of a method, which so has only the cases that its
/// types can meet.
struct Reader<'de>(&'de Value);

impl<'de> Reader<'de> {
    /// Reads a value without parts.
    fn scalar<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match self.0 {
            Value::Null => visitor.visit_unit(),
            Value::Bool(flag) => visitor.visit_bool(*flag),
            Value::Number(number) => match (number.as_u64(), number.as_i64()) {
                (Some(number), _) => visitor.visit_u64(number),
                (_, Some(number)) => visitor.visit_i64(number),
                _ => visitor.visit_f64(number.as_f64().unwrap_or(f64::NAN)),
            },
            Value::String(text) => visitor.visit_borrowed_str(text),
            Value::Array(_) | Value::Object(_) => Err(self.mismatch(&visitor)),
        }
    }

    /// The error for a type that can't be made from the value.
    fn mismatch(&self, expected: &dyn Expected) -> ReadError {
        let found = match self.0 {
            Value::Null => Unexpected::Unit,
            Value::Bool(flag) => Unexpected::Bool(*flag),
            Value::Number(number) => match (number.as_u64(), number.as_i64()) {
                (Some(number), _) => Unexpected::Unsigned(number),
                (_, Some(number)) => Unexpected::Signed(number),
                _ => Unexpected::Float(number.as_f64().unwrap_or(f64::NAN)),
            },
            Value::String(text) => Unexpected::Str(text),
            Value::Array(_) => Unexpected::Seq,
            Value::Object(_) => Unexpected::Map,
        };
        de::Error::invalid_type(found, expected)
    }
}

macro_rules! forward {
    ($($method:ident($($type:ty),*) $to:ident;)*) => {
        $(fn $method<V: Visitor<'de>>(self, $(_: $type,)* visitor: V) -> Result<V::Value, ReadError> {
            self.$to(visitor)
        })*
    };
}

impl<'de> de::Deserializer<'de> for Reader<'de> {
    type Error = ReadError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match self.0 {
            Value::Array(_) => self.deserialize_seq(visitor),
            Value::Object(_) => self.deserialize_map(visitor),
            _ => self.scalar(visitor),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match self.0 {
            Value::Array(values) => {
                visitor.visit_seq(SeqDeserializer::new(values.iter().map(Reader)))
            }
            _ => Err(self.mismatch(&visitor)),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match self.0 {
            Value::Object(values) => visitor.visit_map(Entries::of(values)),
            _ => Err(self.mismatch(&visitor)),
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

    /// Reads a text as a variant without values, and an object as a variant with its value.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        match self.0 {
            Value::String(text) => visitor.visit_enum(text.as_str().into_deserializer()),
            Value::Object(values) => {
                visitor.visit_enum(MapAccessDeserializer::new(Entries::of(values)))
            }
            _ => Err(self.mismatch(&visitor)),
        }
    }

    forward! {
        deserialize_tuple(usize) deserialize_seq;
        deserialize_tuple_struct(&'static str, usize) deserialize_seq;
        deserialize_struct(&'static str, &'static [&'static str]) deserialize_map;
        deserialize_unit_struct(&'static str) scalar;
        deserialize_bool() scalar;
        deserialize_i8() scalar;
        deserialize_i16() scalar;
        deserialize_i32() scalar;
        deserialize_i64() scalar;
        deserialize_i128() scalar;
        deserialize_u8() scalar;
        deserialize_u16() scalar;
        deserialize_u32() scalar;
        deserialize_u64() scalar;
        deserialize_u128() scalar;
        deserialize_f32() scalar;
        deserialize_f64() scalar;
        deserialize_char() scalar;
        deserialize_str() scalar;
        deserialize_string() scalar;
        deserialize_unit() scalar;
        deserialize_identifier() scalar;
    }

    forward_to_deserialize_any! { bytes byte_buf ignored_any }
}

impl<'de> IntoDeserializer<'de, ReadError> for Reader<'de> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}
