//! `manylogs record`.

use crate::args::RecordArgs;
use crate::failure::Failure;

pub(crate) fn run(args: &RecordArgs) -> Result<(), Failure> {
    let _ = args;
    Err(Failure::failed("recording is not built yet"))
}
