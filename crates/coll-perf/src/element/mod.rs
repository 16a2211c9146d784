//! Elements as the processor handles them: one Rust type for each [`DataType`], with the arithmetic of reductions.

mod minifloat;

pub use minifloat::{Bf16, E4m3, E5m2, F16};

use crate::dtype::DataType;

/// One element of a buffer: plain bits, any pattern of which is a value.
pub trait Element: Copy + PartialEq + Send + Sync + 'static {
    /// Which type it is.
    const TYPE: DataType;
    /// Whole numbers from 0 to this are exact, sums of them up to this too.
    const EXACT: i64;
    /// Whether negative numbers exist.
    const SIGNED: bool;
    /// Whether sums and products wrap, so that no order of them can matter, whatever the operands.
    const WRAPS: bool;

    /// The whole number `value`: exact where [`Element::EXACT`] says so, the lowest bits of it for integers.
    fn of(value: i64) -> Self;
    /// Their sum.
    fn plus(self, other: Self) -> Self;
    /// Their product.
    fn times(self, other: Self) -> Self;
    /// The larger.
    fn larger(self, other: Self) -> Self;
    /// The smaller.
    fn smaller(self, other: Self) -> Self;
    /// Divided by `count`, towards zero for integers.
    fn divided_by(self, count: u32) -> Self;
    /// The value, for messages.
    fn show(self) -> String;
}

macro_rules! integers {
    ($($rust:ty, $name:ident, $exact:expr, $signed:literal;)*) => {$(
        impl Element for $rust {
            const TYPE: DataType = DataType::$name;
            const EXACT: i64 = $exact;
            const SIGNED: bool = $signed;
            const WRAPS: bool = true;

            #[inline(always)]
            fn of(value: i64) -> Self { value as $rust }
            #[inline(always)]
            fn plus(self, other: Self) -> Self { self.wrapping_add(other) }
            #[inline(always)]
            fn times(self, other: Self) -> Self { self.wrapping_mul(other) }
            #[inline(always)]
            fn larger(self, other: Self) -> Self { self.max(other) }
            #[inline(always)]
            fn smaller(self, other: Self) -> Self { self.min(other) }
            // More ranks than the type can count: the sum of whole numbers that fit in it is 0 then.
            #[inline(always)]
            fn divided_by(self, count: u32) -> Self {
                <$rust>::try_from(count).map_or(0, |count| self.wrapping_div(count))
            }
            fn show(self) -> String { self.to_string() }
        }
    )*};
}

integers! {
    i8, Int8, 127, true;
    u8, Uint8, 255, false;
    i32, Int32, (1 << 31) - 1, true;
    u32, Uint32, (1 << 32) - 1, false;
    i64, Int64, 1 << 46, true;
    u64, Uint64, 1 << 46, false;
}

macro_rules! floats {
    ($($rust:ty, $name:ident, $exact:expr;)*) => {$(
        impl Element for $rust {
            const TYPE: DataType = DataType::$name;
            const EXACT: i64 = $exact;
            const SIGNED: bool = true;
            const WRAPS: bool = false;

            #[inline(always)]
            fn of(value: i64) -> Self { value as $rust }
            #[inline(always)]
            fn plus(self, other: Self) -> Self { self + other }
            #[inline(always)]
            fn times(self, other: Self) -> Self { self * other }
            // Not f32::max: its care for NaN costs a second comparison, and the inputs have none.
            #[inline(always)]
            fn larger(self, other: Self) -> Self { if self > other { self } else { other } }
            #[inline(always)]
            fn smaller(self, other: Self) -> Self { if self < other { self } else { other } }
            #[inline(always)]
            fn divided_by(self, count: u32) -> Self { self / count as $rust }
            fn show(self) -> String { format!("{self}") }
        }
    )*};
}

// 24 and 53 bits of significand; 2⁴⁶ leaves room for the weights of the inputs (see `data::values`).
floats! {
    f32, Float, 1 << 24;
    f64, Double, 1 << 46;
}

/// Calls `$body` with `$element` standing for the Rust type of `$dtype`.
#[macro_export]
macro_rules! with_element {
    ($dtype:expr, $element:ident => $body:expr) => {
        match $dtype {
            $crate::dtype::DataType::Int8 => {
                type $element = i8;
                $body
            }
            $crate::dtype::DataType::Uint8 => {
                type $element = u8;
                $body
            }
            $crate::dtype::DataType::Int32 => {
                type $element = i32;
                $body
            }
            $crate::dtype::DataType::Uint32 => {
                type $element = u32;
                $body
            }
            $crate::dtype::DataType::Int64 => {
                type $element = i64;
                $body
            }
            $crate::dtype::DataType::Uint64 => {
                type $element = u64;
                $body
            }
            $crate::dtype::DataType::Half => {
                type $element = $crate::element::F16;
                $body
            }
            $crate::dtype::DataType::Float => {
                type $element = f32;
                $body
            }
            $crate::dtype::DataType::Double => {
                type $element = f64;
                $body
            }
            $crate::dtype::DataType::Bfloat16 => {
                type $element = $crate::element::Bf16;
                $body
            }
            $crate::dtype::DataType::F8e4m3 => {
                type $element = $crate::element::E4m3;
                $body
            }
            $crate::dtype::DataType::F8e5m2 => {
                type $element = $crate::element::E5m2;
                $body
            }
        }
    };
}

/// The value of the element of type `dtype` that `bytes` begin with, and its bits.
pub fn show_element(dtype: DataType, bytes: &[u8]) -> String {
    let bits = bytes.iter().take(dtype.bytes() as usize).rev();
    let bits = bits.fold(String::new(), |shown, byte| format!("{shown}{byte:02x}"));
    let value = with_element!(dtype, E => from_bytes::<E>(bytes).show());
    format!("{value} (0x{bits})")
}

/// The element that `bytes` begin with.
///
/// # Panics
/// Where they are too few.
#[allow(unsafe_code, reason = "elements are plain bits")]
pub fn from_bytes<E: Element>(bytes: &[u8]) -> E {
    assert!(bytes.len() >= size_of::<E>(), "an element has its bytes");
    // SAFETY: the bytes are there, need no alignment, and any pattern of them is an element.
    unsafe { bytes.as_ptr().cast::<E>().read_unaligned() }
}

/// Writes `element` to the begin of `bytes`.
///
/// # Panics
/// Where they are too few.
#[allow(unsafe_code, reason = "elements are plain bits")]
#[inline(always)]
pub fn to_bytes<E: Element>(element: E, bytes: &mut [u8]) {
    assert!(bytes.len() >= size_of::<E>(), "an element has its bytes");
    // SAFETY: the bytes are there and need no alignment; an element has no padding.
    unsafe { bytes.as_mut_ptr().cast::<E>().write_unaligned(element) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_has_its_element_of_its_size() {
        for t in DataType::ALL {
            with_element!(*t, E => {
                assert_eq!((E::TYPE, size_of::<E>() as u64), (*t, t.bytes()));
            });
        }
    }

    #[test]
    fn whole_numbers_are_exact_and_so_are_their_sums_up_to_the_limit() {
        for t in DataType::ALL {
            with_element!(*t, E => {
                for step in 0..=64 {
                    let a = E::EXACT / 64 * step;
                    let b = E::EXACT - a;
                    assert!(E::of(a).plus(E::of(b)) == E::of(E::EXACT), "{t:?}: {a} + {b}");
                    if E::SIGNED {
                        assert!(E::of(-a).plus(E::of(a)) == E::of(0), "{t:?}: {a}");
                    }
                }
            });
        }
    }

    #[test]
    fn an_element_is_shown_with_its_bits() {
        assert_eq!(show_element(DataType::Float, &1.5_f32.to_le_bytes()), "1.5 (0x3fc00000)");
        assert_eq!(show_element(DataType::Int8, &[0xff, 7]), "-1 (0xff)");
        assert_eq!(show_element(DataType::F8e4m3, &[0x38]), "1 (0x38)");
    }
}
