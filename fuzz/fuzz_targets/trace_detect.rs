//! Any bytes, whatever format and compression they are taken for.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| manylogs_workload::fuzz_one(None, bytes));
