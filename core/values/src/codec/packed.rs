//! Packed runs: a sequence of numbers of one type as their plain bytes. Pieces: a text, a byte
//! string or a packed run whose bytes are in a blob.

use std::any::type_name;

/// The shortest sequence that is packed. Shorter ones have a header of one byte in MessagePack.
pub(super) const MIN_LEN: usize = 16;

/// Mark a piece, behind [`SOME`](super::SOME). They are MessagePack's markers of its type.
pub(super) const TEXT_APART: u8 = 0xdb;
pub(super) const BYTES_APART: u8 = 0xc6;
/// The run's kind follows.
pub(super) const RUN_APART: u8 = 0xdd;

/// Returns whether the byte behind [`SOME`](super::SOME) begins a packed run or a piece.
#[inline]
pub(super) fn is_packed(byte: u8) -> bool {
    Kind::from_byte(byte).is_some() || matches!(byte, TEXT_APART | BYTES_APART | RUN_APART)
}

macro_rules! kinds {
    ($($kind:ident $marker:literal $width:literal $($name:ident)+;)*) => {
        /// The type of the numbers in a packed run.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Kind {
            $($kind = $marker),*
        }

        impl Kind {
            /// Returns the kind with this byte on the wire.
            #[inline]
            pub(super) fn from_byte(byte: u8) -> Option<Kind> {
                match byte {
                    $($marker => Some(Kind::$kind),)*
                    _ => None,
                }
            }

            /// Returns the size of a number in bytes.
            #[inline]
            pub(super) fn width(self) -> usize {
                match self {
                    $(Kind::$kind => $width,)*
                }
            }

            /// Returns the kind of `T`, if it is a number or a reference to one.
            ///
            /// The names are compared when the program is compiled. The name of a user's type has
            /// the path of its crate, so no other type has one of these names. If a compiler
            /// writes names in another way, sequences are not packed: the writer looks at how the
            /// first element serializes.
            #[inline]
            pub(super) fn of<T>() -> Option<Kind> {
                let name = type_name::<T>();
                $($(if name == stringify!($name) || name == concat!("&", stringify!($name)) {
                    return Some(Kind::$kind);
                })+)*
                None
            }
        }
    };
}

// The bytes on the wire are MessagePack's markers of the types, and that of `true`.
kinds! {
    Bool 0xc3 1 bool;
    F32 0xca 4 f32;
    F64 0xcb 8 f64;
    U8 0xcc 1 u8;
    U16 0xcd 2 u16;
    U32 0xce 4 u32;
    U64 0xcf 8 u64 usize;
    I8 0xd0 1 i8;
    I16 0xd1 2 i16;
    I32 0xd2 4 i32;
    I64 0xd3 8 i64 isize;
}

impl Kind {
    /// Returns the kind of the narrowest integers that have this kind's sign; of others, this one.
    pub(super) fn narrowest(self) -> Kind {
        self.of_width(1)
    }

    /// Returns the narrowest kind that has all of these bits. Only integers become narrower.
    pub(super) fn for_all(self, bits: &[u64]) -> Kind {
        let needed = match self {
            Kind::Bool | Kind::F32 | Kind::F64 => return self,
            Kind::U8 | Kind::U16 | Kind::U32 | Kind::U64 => {
                bits.iter().fold(0, |all, bits| all | bits)
            }
            // The sign takes one bit.
            Kind::I8 | Kind::I16 | Kind::I32 | Kind::I64 => {
                bits.iter().fold(0, |all, bits| all | (bits ^ (*bits as i64 >> 63) as u64)) << 1
            }
        };
        self.of_width(match needed {
            0..=0xff => 1,
            0x100..=0xffff => 2,
            0x1_0000..=0xffff_ffff => 4,
            _ => 8,
        })
    }

    /// Returns the kind of integers of this width in bytes and this kind's sign; of others, this
    /// one.
    fn of_width(self, width: usize) -> Kind {
        let [one, two, four, eight] = match self {
            Kind::Bool | Kind::F32 | Kind::F64 => return self,
            Kind::U8 | Kind::U16 | Kind::U32 | Kind::U64 => {
                [Kind::U8, Kind::U16, Kind::U32, Kind::U64]
            }
            Kind::I8 | Kind::I16 | Kind::I32 | Kind::I64 => {
                [Kind::I8, Kind::I16, Kind::I32, Kind::I64]
            }
        };
        match width {
            1 => one,
            2 => two,
            4 => four,
            _ => eight,
        }
    }

    /// Returns the bits of a number, which has this kind's width. Integers are extended to 64 bits.
    #[inline]
    pub(super) fn read(self, number: &[u8]) -> u64 {
        let mut bits = [0; 8];
        bits[..number.len()].copy_from_slice(number);
        let bits = u64::from_le_bytes(bits);
        match self {
            Kind::I8 => bits as i8 as u64,
            Kind::I16 => bits as i16 as u64,
            Kind::I32 => bits as i32 as u64,
            _ => bits,
        }
    }
}
