//! Data types, as nccl-tests names them.

use serde::{Deserialize, Serialize};

macro_rules! data_types {
    ($($(#[$doc:meta])* $name:ident = $word:literal, $bytes:literal, $also:expr;)*) => {
        /// The type of one element.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum DataType {
            $($(#[$doc])* #[serde(rename = $word)] $name,)*
        }

        impl DataType {
            /// All of them, in nccl-tests' order.
            pub const ALL: &'static [DataType] = &[$(DataType::$name,)*];

            /// Its name on the command line, in the table and in JSON.
            pub fn name(self) -> &'static str {
                match self { $(DataType::$name => $word,)* }
            }

            /// Bytes of one element.
            pub fn bytes(self) -> u64 {
                match self { $(DataType::$name => $bytes,)* }
            }

            fn also(self) -> &'static [&'static str] {
                match self { $(DataType::$name => $also,)* }
            }
        }
    };
}

data_types! {
    /// Signed, 8 bits.
    Int8 = "int8", 1, &["char", "i8"];
    /// Unsigned, 8 bits.
    Uint8 = "uint8", 1, &["u8"];
    /// Signed, 32 bits.
    Int32 = "int32", 4, &["int", "i32"];
    /// Unsigned, 32 bits.
    Uint32 = "uint32", 4, &["u32"];
    /// Signed, 64 bits.
    Int64 = "int64", 8, &["i64"];
    /// Unsigned, 64 bits.
    Uint64 = "uint64", 8, &["u64"];
    /// IEEE 754 binary16.
    Half = "half", 2, &["float16", "fp16", "f16"];
    /// IEEE 754 binary32.
    Float = "float", 4, &["float32", "fp32", "f32"];
    /// IEEE 754 binary64.
    Double = "double", 8, &["float64", "fp64", "f64"];
    /// The upper half of a binary32.
    Bfloat16 = "bfloat16", 2, &["bf16"];
    /// 8 bits: 4 of exponent, 3 of fraction, no infinity.
    F8e4m3 = "f8e4m3", 1, &["fp8e4m3", "float8_e4m3", "e4m3"];
    /// 8 bits: 5 of exponent, 2 of fraction.
    F8e5m2 = "f8e5m2", 1, &["fp8e5m2", "float8_e5m2", "e5m2"];
}

impl DataType {
    /// The type that `word` means; nccl-tests' names and those of other libraries are taken.
    pub fn named(word: &str) -> Option<Self> {
        let word = word.to_ascii_lowercase().replace('-', "_");
        Self::ALL.iter().copied().find(|t| t.name() == word || t.also().contains(&word.as_str()))
    }

    /// How many elements 16 bytes are: counts are rounded down to a multiple of it where a buffer is divided among
    /// ranks, as in nccl-tests.
    pub fn elements_in_16_bytes(self) -> u64 {
        16 / self.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nccl_tests_names_and_others_are_understood_and_nothing_else() {
        for t in DataType::ALL {
            assert_eq!(DataType::named(t.name()), Some(*t));
        }
        assert_eq!(DataType::named("BF16"), Some(DataType::Bfloat16));
        assert_eq!(DataType::named("float8-e4m3"), Some(DataType::F8e4m3));
        assert_eq!(DataType::named("floaty"), None);
    }

    #[test]
    fn no_word_means_two_types() {
        let mut seen = std::collections::HashSet::new();
        for t in DataType::ALL {
            assert!(std::iter::once(&t.name()).chain(t.also()).all(|word| seen.insert(*word)), "{t:?}");
        }
    }
}
