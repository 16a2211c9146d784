//! Floating-point numbers of 16 and 8 bits, by way of `f32`, without a branch, so that the compiler can do a vector of
//! them at a time.
//!
//! Sums and products are rounded once more when they become small again; both ways are exact or correctly rounded for
//! two operands, since an `f32` has more than twice as many bits as any of them and two.

use super::Element;
use crate::dtype::DataType;

/// The layout of a small float: a sign, `EXPONENT` bits, `FRACTION` bits.
trait Layout {
    const EXPONENT: u32;
    const FRACTION: u32;
    /// The bits, without the sign, of the largest finite value.
    const LARGEST: u32;
    /// The bits, without the sign, of what a larger value becomes: infinity, or the largest where there is none.
    const TOO_LARGE: u32;
    /// The bits, without the sign, of a NaN.
    const NAN: u32;
    const BIAS: u32 = (1 << (Self::EXPONENT - 1)) - 1;
    /// How far the fraction stands from where it stands in an `f32`.
    const SHIFT: u32 = 23 - Self::FRACTION;
}

const SIGN: u32 = 0x8000_0000;
/// Infinity of an `f32`.
const INFINITE: u32 = 0x7f80_0000;

/// The value of `bits`, whose sign is at `sign_at`. The exponent is corrected by one multiplication, which makes
/// normal numbers of small ones that have no leading bit.
#[inline(always)]
fn widen<L: Layout>(bits: u32, sign_at: u32) -> f32 {
    let magnitude = bits & ((1 << sign_at) - 1);
    let scale = f32::from_bits((254 - L::BIAS) << 23);
    let value = (f32::from_bits(magnitude << L::SHIFT) * scale).to_bits();
    let value = if magnitude > L::LARGEST {
        if magnitude == L::TOO_LARGE { INFINITE } else { INFINITE | 0x40_0000 }
    } else {
        value
    };
    f32::from_bits(value | ((bits >> sign_at) << 31))
}

/// The nearest small float, the even one of two; its sign stays at bit 31.
#[inline(always)]
fn narrow<L: Layout>(value: f32) -> u32 {
    let bits = value.to_bits();
    let magnitude = bits & !SIGN;
    // Normal results: round at the bit below the last one kept, ties to even, and correct the exponent.
    let odd = (magnitude >> L::SHIFT) & 1;
    let rounded = magnitude.wrapping_add((1 << (L::SHIFT - 1)) - 1 + odd) >> L::SHIFT;
    let normal = rounded.wrapping_sub((127 - L::BIAS) << L::FRACTION);
    // Results without a leading bit are a number of steps of 2^(1 − bias − fraction). Adding 2²³ steps makes the
    // hardware round to whole ones.
    let steps = f32::from_bits((127 + 23 + 1 - L::BIAS - L::FRACTION) << 23);
    let small = (f32::from_bits(magnitude) + steps).to_bits().wrapping_sub(steps.to_bits());
    let least_normal = (127 + 1 - L::BIAS) << 23;
    let kept = if magnitude < least_normal { small } else { normal };
    let kept = if kept > L::LARGEST { L::TOO_LARGE } else { kept };
    if magnitude > INFINITE { L::NAN | (bits & SIGN) } else { kept | (bits & SIGN) }
}

macro_rules! minifloats {
    ($($(#[$doc:meta])* $rust:ident, $bits:ty, $name:ident, $exact:expr, $exponent:literal, $fraction:literal, $largest:literal, $too_large:literal, $nan:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(transparent)]
        pub struct $rust(pub $bits);

        impl Layout for $rust {
            const EXPONENT: u32 = $exponent;
            const FRACTION: u32 = $fraction;
            const LARGEST: u32 = $largest;
            const TOO_LARGE: u32 = $too_large;
            const NAN: u32 = $nan;
        }

        impl $rust {
            const SIGN_AT: u32 = <$bits>::BITS - 1;

            /// The value.
            #[inline(always)]
            pub fn to_f32(self) -> f32 {
                widen::<Self>(u32::from(self.0), Self::SIGN_AT)
            }

            /// The nearest to `value`, the even one of two.
            #[inline(always)]
            pub fn from_f32(value: f32) -> Self {
                let bits = narrow::<Self>(value);
                Self(((bits & !SIGN) | (bits >> (31 - Self::SIGN_AT) & (1 << Self::SIGN_AT))) as $bits)
            }
        }

        impl Element for $rust {
            const TYPE: DataType = DataType::$name;
            const EXACT: i64 = $exact;
            const SIGNED: bool = true;
            const WRAPS: bool = false;

            #[inline(always)]
            fn of(value: i64) -> Self { Self::from_f32(value as f32) }
            #[inline(always)]
            fn plus(self, other: Self) -> Self { Self::from_f32(self.to_f32() + other.to_f32()) }
            #[inline(always)]
            fn times(self, other: Self) -> Self { Self::from_f32(self.to_f32() * other.to_f32()) }
            #[inline(always)]
            fn larger(self, other: Self) -> Self { if self.to_f32() > other.to_f32() { self } else { other } }
            #[inline(always)]
            fn smaller(self, other: Self) -> Self { if self.to_f32() < other.to_f32() { self } else { other } }
            #[inline(always)]
            fn divided_by(self, count: u32) -> Self { Self::from_f32(self.to_f32() / count as f32) }
            fn show(self) -> String { format!("{}", self.to_f32()) }
        }
    )*};
}

// Layouts: IEEE 754-2019 (binary16), the upper half of binary32 (bfloat16), and the OCP 8-bit floating point
// specification 1.0. In e4m3 only the largest code is NaN, and there is no infinity: what is too large becomes the
// largest value, as CUDA's conversions have it.
minifloats! {
    /// IEEE 754 binary16.
    F16, u16, Half, 1 << 11, 5, 10, 0x7bff, 0x7c00, 0x7e00;
    /// bfloat16.
    Bf16, u16, Bfloat16, 1 << 8, 8, 7, 0x7f7f, 0x7f80, 0x7fc0;
    /// 8 bits, 4 of exponent and 3 of fraction.
    E4m3, u8, F8e4m3, 1 << 4, 4, 3, 0x7e, 0x7e, 0x7f;
    /// 8 bits, 5 of exponent and 2 of fraction.
    E5m2, u8, F8e5m2, 1 << 3, 5, 2, 0x7b, 0x7c, 0x7e;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value by definition: ±(1 + fraction) × 2^(exponent − bias), without the 1 where the exponent is 0.
    fn by_definition(bits: u32, exponent_bits: u32, fraction_bits: u32) -> f64 {
        let sign = if bits >> (exponent_bits + fraction_bits) == 1 { -1.0 } else { 1.0 };
        let exponent = (bits >> fraction_bits) & ((1 << exponent_bits) - 1);
        let fraction = f64::from(bits & ((1 << fraction_bits) - 1)) / f64::from(1 << fraction_bits);
        let bias = (1 << (exponent_bits - 1)) - 1;
        let leading = if exponent == 0 { 0.0 } else { 1.0 };
        sign * (leading + fraction) * 2_f64.powi(exponent.max(1) as i32 - bias)
    }

    macro_rules! check {
        ($type:ident, $bits:ty) => {{
            let sign = 1_u32 << $type::SIGN_AT;
            for magnitude in 0..=$type::LARGEST {
                for bits in [magnitude, magnitude | sign] {
                    let value = $type(bits as $bits);
                    let expected = by_definition(bits, $type::EXPONENT, $type::FRACTION);
                    assert_eq!(f64::from(value.to_f32()), expected, "{bits:#x}");
                    assert_eq!($type::from_f32(value.to_f32()), value, "{bits:#x}");
                }
                // Just below, at and just above the middle to the next value: down, to the even one, up.
                if magnitude < $type::LARGEST {
                    let (low, high) = (magnitude, magnitude + 1);
                    let of = |bits| by_definition(bits, $type::EXPONENT, $type::FRACTION);
                    let middle = (of(low) + of(high)) / 2.0;
                    let even = if low % 2 == 0 { low } else { high };
                    // f32 holds the middles of all but bfloat16's smallest values.
                    if f64::from(middle as f32) == middle {
                        let rounded = |value: f32| u32::from($type::from_f32(value).0);
                        assert_eq!(rounded(middle as f32), even, "{low:#x}");
                        assert_eq!(rounded((middle as f32).next_down()), low, "{low:#x}");
                        assert_eq!(rounded((middle as f32).next_up()), high, "{low:#x}");
                    }
                }
            }
        }};
    }

    #[test]
    fn every_value_is_what_the_layout_defines_and_rounding_is_to_the_nearest() {
        check!(F16, u16);
        check!(Bf16, u16);
        check!(E4m3, u8);
        check!(E5m2, u8);
    }

    #[test]
    fn what_is_too_large_is_infinite_where_there_is_infinity() {
        assert_eq!(F16::from_f32(65520.0), F16(0x7c00));
        assert_eq!(F16::from_f32(65519.0), F16(0x7bff));
        assert_eq!(E5m2::from_f32(-1e9), E5m2(0xfc));
        assert_eq!(E4m3::from_f32(1e9), E4m3(0x7e));
        assert_eq!(E4m3::from_f32(f32::NEG_INFINITY), E4m3(0xfe));
        assert_eq!(Bf16::from_f32(f32::MAX), Bf16(0x7f80));
        assert!(F16(0x7c00).to_f32().is_infinite() && E5m2(0xfc).to_f32() == f32::NEG_INFINITY);
    }

    #[test]
    fn nan_stays_nan() {
        for value in [f32::NAN, -f32::NAN] {
            assert!(F16::from_f32(value).to_f32().is_nan() && Bf16::from_f32(value).to_f32().is_nan());
            assert!(E4m3::from_f32(value).to_f32().is_nan() && E5m2::from_f32(value).to_f32().is_nan());
        }
        assert!(
            F16(0x7c01).to_f32().is_nan() && E5m2(0xff).to_f32().is_nan() && E4m3(0x7f).to_f32().is_nan()
        );
    }
}
