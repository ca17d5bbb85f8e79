//! Any bytes as a record header in a log, as they are and with right checksums.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| manylogs_torture::fuzz::record(bytes));
