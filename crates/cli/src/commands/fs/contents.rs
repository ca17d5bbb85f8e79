//! Names the content of a disk without ext4.

use std::path::Path;

use manylogs_ext4::{Error, Refusal};
use manylogs_storage::{Contents, survey};

use crate::failure::Failure;

/// Whether `error` says that there is no ext4.
pub(super) const fn is_other(error: &Error) -> bool {
    matches!(error, Error::Refused(Refusal::NotExt4(_)))
}

/// The failure for a disk without ext4: names its content, and the command for it.
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
