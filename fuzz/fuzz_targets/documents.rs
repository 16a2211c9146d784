#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| linkproof_fuzz::documents(data));
