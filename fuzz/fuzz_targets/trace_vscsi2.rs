//! Any bytes as a trace of the format `vscsi2`.
#![no_main]

use manylogs_workload::{Format, fuzz_one};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz_one(Some(Format::Vscsi2), bytes));
