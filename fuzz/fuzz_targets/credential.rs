//! `cargo +nightly fuzz run credential`
#![no_main]

#[path = "../entry.rs"]
#[expect(dead_code, reason = "each target uses one entry")]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::credential(data));
