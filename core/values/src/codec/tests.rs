mod deep;
mod enums;
mod model;
mod packed;
mod refused;
mod wire;

use std::fmt::Debug;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::*;

#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, serde::Deserialize,
)]
struct Unit;

/// Encodes a value with rmp-serde.
fn by_rmp_serde<T: Serialize + ?Sized>(value: &T) -> Vec<u8> {
    let mut out = Vec::new();
    value.serialize(&mut rmp_serde::Serializer::new(&mut out).with_struct_map()).unwrap();
    out
}

/// Returns plain MessagePack, and fiber's mark of `Some`, for an encoded value with packed runs.
fn unpacked(value: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let rest = unpack(value, &mut out);
    assert!(rest.is_empty());
    out
}

/// Unpacks one value, and returns the bytes behind it.
fn unpack<'a>(value: &'a [u8], out: &mut Vec<u8>) -> &'a [u8] {
    fn number(bytes: &[u8]) -> usize {
        bytes.iter().fold(0, |number, byte| number << 8 | usize::from(*byte))
    }
    let sized = |width: usize| 1 + width + number(&value[1..=width]);
    let (header, inner) = match value[0] {
        0xc1 if value[1] > 0xc1 => return unpack_run(value[1], &value[2..], out),
        0xc1 => (1, 1),
        marker @ 0x80..=0x8f => (1, 2 * usize::from(marker & 15)),
        marker @ 0x90..=0x9f => (1, usize::from(marker & 15)),
        marker @ 0xa0..=0xbf => (1 + usize::from(marker & 31), 0),
        0xdc => (3, number(&value[1..3])),
        0xdd => (5, number(&value[1..5])),
        0xde => (3, 2 * number(&value[1..3])),
        0xdf => (5, 2 * number(&value[1..5])),
        0xc4 | 0xd9 => (sized(1), 0),
        0xc5 | 0xda => (sized(2), 0),
        0xc6 | 0xdb => (sized(4), 0),
        0xc7 => (sized(1) + 1, 0),
        0xc8 => (sized(2) + 1, 0),
        0xc9 => (sized(4) + 1, 0),
        marker @ 0xd4..=0xd8 => (2 + (1 << (marker - 0xd4)), 0),
        0xcc | 0xd0 => (2, 0),
        0xcd | 0xd1 => (3, 0),
        0xca | 0xce | 0xd2 => (5, 0),
        0xcb | 0xcf | 0xd3 => (9, 0),
        _ => (1, 0),
    };
    out.extend_from_slice(&value[..header]);
    (0..inner).fold(&value[header..], |rest, _| unpack(rest, out))
}

fn unpack_run<'a>(kind: u8, run: &'a [u8], out: &mut Vec<u8>) -> &'a [u8] {
    let (len, mut rest) = run.split_first_chunk().unwrap();
    let len = u32::from_be_bytes(*len);
    rmp::encode::write_array_len(out, len).unwrap();
    for _ in 0..len {
        macro_rules! plain {
            ($($kind:literal $type:ident $write:ident;)*) => {
                match kind {
                    $($kind => {
                        let (number, behind) = rest.split_first_chunk().unwrap();
                        rmp::encode::$write(out, $type::from_le_bytes(*number).into()).unwrap();
                        behind
                    })*
                    0xc3 => {
                        out.push(0xc2 + rest[0]);
                        &rest[1..]
                    }
                    _ => panic!("a run of {kind:#x}"),
                }
            };
        }
        rest = plain! {
            0xca f32 write_f32; 0xcb f64 write_f64;
            0xcc u8 write_uint; 0xcd u16 write_uint; 0xce u32 write_uint; 0xcf u64 write_uint;
            0xd0 i8 write_sint; 0xd1 i16 write_sint; 0xd2 i32 write_sint; 0xd3 i64 write_sint;
        };
    }
    rest
}

/// Checks that `value` survives encoding and decoding, also without packed runs. If it does so with
/// rmp-serde too, checks that the bytes are equal but for these.
fn arrives<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: &T) {
    let bytes = encode(value).unwrap();
    assert_eq!(&decode::<T>(&bytes).unwrap(), value);
    let bytes = unpacked(&bytes);
    assert_eq!(&decode::<T>(&bytes).unwrap(), value);
    let theirs = by_rmp_serde(value);
    if rmp_serde::from_slice::<T>(&theirs).is_ok_and(|arrived| &arrived == value) {
        assert_eq!(bytes, theirs, "{value:?}");
    }
}
