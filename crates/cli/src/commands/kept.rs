//! Results of runs that an earlier command finished.

use std::io::ErrorKind;
use std::path::Path;

use manylogs_lab::runs::{Kept, KeptError};

use crate::failure::Failure;

/// The rows opened at `path`. Prints how many of them cannot be used.
pub(super) fn told<R>(path: &Path, opened: Result<Kept<R>, KeptError>) -> Result<Kept<R>, Failure> {
    let kept = opened.map_err(|error| kept_failure(&error))?;
    for (count, what) in [
        (kept.dropped(), "are of another version of this program"),
        (kept.damaged(), "are damaged"),
    ] {
        if count > 0 {
            let path = path.display();
            eprintln!("note: {path}: {count} rows {what}: their runs are done again");
        }
    }
    Ok(kept)
}

pub(super) fn kept_failure(error: &KeptError) -> Failure {
    match error.source.kind() {
        ErrorKind::ResourceBusy => Failure::Busy(error.to_string()),
        _ => Failure::of_given(&error.source, error),
    }
}
