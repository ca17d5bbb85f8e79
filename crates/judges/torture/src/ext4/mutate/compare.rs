//! Two judges of one damaged image: our own check, and e2fsck.

use manylogs_ext4check::{Finding, Ino, Place, Problem, Report, Unreadable};
use manylogs_sim::DiskImage;

use crate::ext4::images::save;
use crate::ext4::judge::{Said, e2fsck};
use crate::ext4::world::SMALL_MIB;
use crate::tally::Tally;

/// Whether the two agree.
///
/// # Errors
/// If one finds what the other does not, and that is not meant.
pub(super) fn compare(
    image: &DiskImage,
    found: Result<Report, Unreadable>,
    tally: &mut Tally,
) -> Result<(), String> {
    let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
    let path = dir.path().join("image");
    save(image, SMALL_MIB, &path).map_err(|error| error.to_string())?;
    let said = e2fsck(&["-fn"], &path);
    let ours = found.as_ref().map_or(true, |report| !report.is_spotless());
    // A wrong checksum of the first descriptor is told, and the exit code is 0 all the same.
    let theirs = said.code != 0 || said.text.contains("Fix? no");
    match (ours, theirs) {
        (true, true) => tally.mutated_found_by_both += 1,
        (false, false) => tally.mutated_found_by_neither += 1,
        (true, false) if is_ours_alone(&found) => tally.mutated_found_by_check += 1,
        (false, true) if is_theirs_alone(&said) => tally.mutated_found_by_e2fsck += 1,
        (true, false) => return Err(format!("only our check finds: {}", told(&found))),
        (false, true) => return Err(format!("only e2fsck finds: {said}")),
    }
    Ok(())
}

fn told(found: &Result<Report, Unreadable>) -> String {
    match found {
        Ok(report) => {
            report.findings.iter().take(4).map(|finding| format!("{finding}; ")).collect()
        }
        Err(error) => error.to_string(),
    }
}

/// Whether e2fsck does not look at, or silently puts right, all that was found.
fn is_ours_alone(found: &Result<Report, Unreadable>) -> bool {
    match found {
        Ok(report) => report.more == 0 && report.findings.iter().all(is_unseen),
        // It knows features that such an image does not use, and which are refused by name.
        Err(error) => matches!(error, Unreadable::Features { .. }),
    }
}

/// Whether e2fsck does not look at what was found, or puts it right without a word.
pub(crate) fn is_unseen(finding: &Finding) -> bool {
    match finding.problem {
        _ if finding.is_note() => true,
        // With -n it leaves the list of orphans alone.
        Problem::Orphan => true,
        // It lets bad blocks be where its own structures are.
        Problem::UsedTwice => matches!(finding.place, Place::Block(Ino(1), _)),
        // It passes some of those of inodes without names over.
        Problem::Misplaced("a block of attributes") => {
            matches!(finding.place, Place::Inode(ino) if ino.0 < 11)
        }
        // It reads the fields of the journal's superblock for a replay only.
        Problem::Impossible(_) if finding.place == Place::Journal => true,
        Problem::Impossible(what) => UNSEEN.contains(&what),
        _ => false,
    }
}

/// What the kernel refuses, or nobody reads.
const UNSEEN: [&str; 7] = [
    "another depth than its parent says",
    "more unused inodes than inodes",
    "the kind of '.' or '..'",
    "the map of blocks for more descriptors",
    "a depth of a tree without extents",
    "no link of the inode for more descriptors",
    "a target that was not written",
];

/// Whether our check does not look at what e2fsck found: times of the superblock that are yet to
/// come, which it tells and passes over.
fn is_theirs_alone(said: &Said) -> bool {
    said.code == 0
        && said.text.matches("Fix? no").count() == said.text.matches("is in the future").count()
}
