//! The C face: one function for each of [`cuda_sys::Cuda`]'s.
//!
//! They convert arguments and do nothing else. What CUDA asks of a caller it asks here too: pointers lead to what the
//! header says, or are NULL where a call says so.

/// Declares exported functions whose bodies are a call of the driver: counted for faults, and refused before `cuInit`.
/// That each fits the table's declaration is checked when this is compiled.
macro_rules! exports {
    (
        required { $($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) |$driver:ident| $body:expr;)* }
        optional { $($(#[$odoc:meta])* fn $oname:ident($($oarg:ident: $otype:ty),* $(,)?) |$odriver:ident| $obody:expr;)* }
    ) => {
        $($(#[$doc])*
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, reason = "named as in C")]
        pub(crate) unsafe extern "C" fn $name($($arg: $type),*) -> cuda_sys::CUresult {
            $crate::driver::call(stringify!($name), |$driver| $body)
        })*
        $($(#[$odoc])*
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, reason = "named as in C")]
        pub(crate) unsafe extern "C" fn $oname($($oarg: $otype),*) -> cuda_sys::CUresult {
            $crate::driver::call(stringify!($oname), |$odriver| $obody)
        })*

        #[allow(dead_code, reason = "compiled for its types only")]
        fn fits(table: &mut cuda_sys::Cuda) {
            $(table.$name = $name;)*
            $(table.$oname = Some($oname);)*
        }
    };
}

mod gpus;
mod memory;
mod pointers;
mod streams;
mod unsupported;
