//! `manylogs trace`: look at traces and change them.

use crate::args::TraceArgs;
use crate::failure::Failure;

pub(crate) fn run(args: &TraceArgs) -> Result<(), Failure> {
    let _ = args;
    Err(Failure::failed("not built yet"))
}
