//! What a disk holds that is no ext4.

use std::path::Path;

use manylogs_ext4::{Error, Refusal};
use manylogs_storage::{Contents, survey};

use crate::failure::Failure;

/// Whether `error` is that no ext4 is there.
pub(super) const fn is_other(error: &Error) -> bool {
    matches!(error, Error::Refused(Refusal::NotExt4(_)))
}

/// Says what a disk without ext4 holds, and what that is for.
pub(super) fn no_ext4(source: &Path) -> Failure {
    let contents = survey(source).unwrap_or(Contents::Unknown);
    let what = match &contents {
        Contents::Known(names) if names.contains(&"a Manylogs volume") => {
            "it is a Manylogs volume, which manylogs serve shows as a disk".to_owned()
        }
        Contents::Known(_) => format!("it holds {contents}"),
        Contents::Empty => "it is empty: mkfs.ext4 -b 4096 makes a file system".to_owned(),
        _ => "nothing that is known is on it".to_owned(),
    };
    Failure::Input(format!("{}: no ext4 here: {what}", source.display()))
}
