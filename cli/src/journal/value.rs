//! Encoded values as JSON.

use std::fmt;

use bytes::Bytes;
use fiber_values::blob::{Blob, Blobs};
use fiber_values::codec;
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};

use crate::hex;

/// Decodes a value, as far as it describes itself.
pub(crate) fn value(bytes: &[u8], blobs: impl Iterator<Item = Bytes>) -> Value {
    let apart: Vec<_> = blobs.map(Blob::private).collect();
    match codec::decode_with::<Json>(bytes, &Blobs::from(apart)) {
        Ok(Json(value)) => value,
        Err(_) => json!({ "hex": hex(bytes) }),
    }
}

struct Json(Value);

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Json, D::Error> {
        deserializer.deserialize_any(JsonVisitor).map(Json)
    }
}

struct JsonVisitor;

impl<'de> Visitor<'de> for JsonVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f32<E>(self, value: f32) -> Result<Value, E> {
        // The shortest text of the number, and not that of the nearest f64.
        Ok(value.to_string().parse().map_or_else(|_| value.to_string().into(), number))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(number(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_bytes<E>(self, value: &[u8]) -> Result<Value, E> {
        Ok(json!({ "hex": hex(value) }))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, value: D) -> Result<Value, D::Error> {
        value.deserialize_any(self)
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, value: D) -> Result<Value, D::Error> {
        value.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Json(element)) = elements.next_element()? {
            list.push(element);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some((Json(key), Json(value))) = entries.next_entry()? {
            let key = match key {
                Value::String(key) => key,
                key => key.to_string(),
            };
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

/// Returns a number. Those that JSON does not have are texts.
fn number(value: f64) -> Value {
    serde_json::Number::from_f64(value).map_or_else(|| value.to_string().into(), Value::Number)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use fiber_values::Array;

    use super::*;

    #[derive(serde::Serialize)]
    enum Shape {
        Point,
        Circle { radius: f32 },
    }

    #[track_caller]
    fn exported<T: serde::Serialize>(value: T, expected: &Value) {
        let mut bytes = Vec::new();
        let blobs = codec::append_apart(&mut bytes, &value).expect("it can be encoded");
        let blobs: Vec<_> = blobs.iter().map(Blob::to_bytes).collect();
        assert_eq!(super::value(&bytes, blobs.into_iter()), *expected);
    }

    #[test]
    fn values_describe_themselves() {
        exported(7u8, &json!(7));
        exported(-7i64, &json!(-7));
        exported(0.1f32, &json!(0.1));
        exported(f64::NAN, &json!("NaN"));
        exported(f64::INFINITY, &json!("inf"));
        exported(("a", true, ()), &json!(["a", true, null]));
        exported(Some(Some(3)), &json!(3));
        exported(Some(None::<u8>), &json!(null));
        exported(BTreeMap::from([(1, "x")]), &json!({ "1": "x" }));
        exported(
            [Shape::Point, Shape::Circle { radius: 1.5 }],
            &json!([
                "Point",
                { "Circle": { "radius": 1.5 } },
            ]),
        );
        exported((0..100).collect::<Vec<u64>>(), &json!((0..100).collect::<Vec<u64>>()));
        exported(vec![0.5f64; 20_000], &json!(vec![0.5; 20_000]));
        exported("é".repeat(40_000), &json!("é".repeat(40_000)));
        exported(
            Array::from([1.5f64, 2.5]),
            &json!([14, null, { "hex": "000000000000f83f0000000000000440" }]),
        );
        exported(Array::from(vec![1u8; 100_000]), &json!([1, null, 0]));
        exported(Bytes::from_static(b"\x00\xff"), &json!({ "hex": "00ff" }));
    }

    #[test]
    fn a_value_that_does_not_is_its_bytes() {
        let exported = value(&[0x92], [Bytes::from_static(b"\x12")].into_iter());
        assert_eq!(exported, json!({ "hex": "92" }));
    }
}
