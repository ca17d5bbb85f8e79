//! Compares two judges of one damaged image: our own check, and e2fsck.

use manylogs_ext4check::{Finding, Ino, Location, Problem, Report, Unreadable};
use manylogs_sim::DiskImage;

use crate::ext4::images::{image_dir, save};
use crate::ext4::judge::{Said, e2fsck};
use crate::ext4::world::SMALL_MIB;
use crate::tally::Tally;

/// Compares our verdict with that of e2fsck.
///
/// # Errors
/// If one finds something that the other does not, and that is not expected.
pub(super) fn compare(
    image: &DiskImage,
    found: Result<Report, Unreadable>,
    tally: &mut Tally,
) -> Result<(), String> {
    let dir = image_dir().map_err(|error| error.to_string())?;
    let path = dir.path().join("image");
    save(image, SMALL_MIB, &path).map_err(|error| error.to_string())?;
    let said = e2fsck(&["-fn"], &path);
    let ours = found.as_ref().map_or(true, |report| !report.is_spotless());
    // e2fsck reports a wrong checksum of the first descriptor, but its exit code is 0.
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

/// Whether e2fsck ignores or silently corrects everything that was found.
fn is_ours_alone(found: &Result<Report, Unreadable>) -> bool {
    match found {
        Ok(report) => report.more == 0 && report.findings.iter().all(is_unseen),
        // e2fsck knows features that these images do not use; our check refuses them by name.
        Err(error) => matches!(error, Unreadable::Features { .. }),
    }
}

/// Whether e2fsck ignores the finding or corrects it silently.
pub(crate) fn is_unseen(finding: &Finding) -> bool {
    match finding.problem {
        _ if finding.is_note() => true,
        // With -n it ignores the list of orphans.
        Problem::Orphan => true,
        // It allows bad blocks where its own structures are.
        Problem::UsedTwice => matches!(finding.place, Location::Block(Ino(1), _)),
        // It ignores some blocks of attributes of inodes without names.
        Problem::Misplaced("a block of attributes") => {
            matches!(finding.place, Location::Inode(ino) if ino.0 < 11)
        }
        // It reads the fields of the journal's superblock only for a replay.
        Problem::Impossible(_) if finding.place == Location::Journal => true,
        Problem::Impossible(what) => UNSEEN.contains(&what),
        _ => false,
    }
}

/// Values that the kernel refuses, or that no program reads.
const UNSEEN: [&str; 7] = [
    "another depth than its parent says",
    "more unused inodes than inodes",
    "the kind of '.' or '..'",
    "the map of blocks for more descriptors",
    "a depth of a tree without extents",
    "no link of the inode for more descriptors",
    "a target that was not written",
];

/// Whether e2fsck found only what our check ignores: times of the superblock that are in the
/// future, which it reports without counting them as errors.
fn is_theirs_alone(said: &Said) -> bool {
    said.code == 0
        && said.text.matches("Fix? no").count() == said.text.matches("is in the future").count()
}
