//! Any bytes as a snapshot on the disk, as they are and with right checksums.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| manylogs_torture::fuzz::snapshot(bytes));
