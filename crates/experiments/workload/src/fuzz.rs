//! The one entry of all fuzzers.

use std::io::Cursor;
use std::path::Path;

use manylogs_block::Time;

use crate::error::TraceError;
use crate::open::{Format, OpenOptions, open_reader};
use crate::request::TraceSource;

/// The file's name in messages.
const NAME: &str = "fuzzed.trace";
/// Most requests read of an input, because a compressed one may hold very many.
const MAX_REQUESTS: u64 = 200_000;

/// Reads `bytes` as a trace of `format` (detected when `None`), once strictly and once skipping bad
/// records, and checks the promises of every reader.
///
/// # Panics
///
/// If requests go back in time, a data request is empty or impossibly large, an error does not
/// say where, or reading goes on behind an error.
pub fn fuzz_one(format: Option<Format>, bytes: &[u8]) {
    for skip_bad in [false, true] {
        let options = OpenOptions { format, skip_bad, ..OpenOptions::default() };
        match open_reader(Path::new(NAME), Cursor::new(bytes.to_vec()), &options) {
            Ok(mut source) => drain(&mut source, skip_bad),
            Err(error) => check_error(&error, false),
        }
    }
}

fn drain(source: &mut impl TraceSource, skip_bad: bool) {
    let mut last = Time(0);
    for _ in 0..MAX_REQUESTS {
        match source.next_request() {
            None => return,
            Some(Err(error)) => {
                check_error(&error, skip_bad);
                assert!(source.next_request().is_none(), "nothing follows an error");
                return;
            }
            Some(Ok(request)) => {
                assert!(request.at >= last, "time goes back");
                last = request.at;
                let empty = request.extent.is_empty();
                assert_eq!(empty, request.op == crate::TraceOp::Flush, "{request:?}");
                assert!(request.extent.end().0 <= 1 << 53, "{request:?}");
            }
        }
    }
}

fn check_error(error: &TraceError, skip_bad: bool) {
    let message = error.to_string();
    match error {
        TraceError::Malformed(record) | TraceError::Truncated(record) => {
            assert!(!skip_bad, "a bad record was not passed over: {message}");
            assert!(message.starts_with(NAME), "no file in: {message}");
            assert!(!record.expected.is_empty() && !record.found.is_empty(), "{message}");
        }
        TraceError::Options(_) => {}
        _ => assert!(message.starts_with(NAME), "no file in: {message}"),
    }
}
