//! Checks the formats that are found on devices made by real tools.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::os::unix::fs::FileExt;
use std::path::Path;

use common::{image, try_run};
use manylogs_storage::{Contents, survey};

const SECTORS: u64 = 400 << 11;

fn put(path: &Path, at: u64, bytes: &[u8]) {
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(bytes, at).unwrap();
}

#[test]
fn file_systems_and_swap_space_are_recognised() {
    let makers: [(&str, &[&str], &str); 7] = [
        ("mkfs.ext4", &["-q"], "ext4"),
        ("mkfs.xfs", &["-q", "-f"], "XFS"),
        ("mkfs.btrfs", &["-q", "-f"], "Btrfs"),
        ("mkfs.vfat", &[], "FAT"),
        ("mkfs.f2fs", &["-q", "-f"], "F2FS"),
        ("mkswap", &[], "swap"),
        ("sfdisk", &["--quiet", "--wipe=always"], "GPT"),
    ];
    for (maker, arguments, name) in makers {
        let dir = tempfile::tempdir().unwrap();
        let path = image(dir.path(), SECTORS);
        assert_eq!(survey(&path).unwrap(), Contents::Empty);
        let command = format!(
            "printf 'label: gpt\n,,L\n' | {maker} {} {} 2>&1",
            arguments.join(" "),
            path.display()
        );
        if try_run("sh", &["-c", &command]).is_some() {
            let found = survey(&path).unwrap();
            assert!(!found.is_empty() && found.to_string().contains(name), "{maker}: {found}");
        }
    }
}

#[test]
fn a_volume_is_recognised_by_its_first_or_its_last_superblock() {
    for sectors in [4096, 4099] {
        for at in [0, 4088 * 512] {
            let dir = tempfile::tempdir().unwrap();
            let path = image(dir.path(), sectors);
            put(&path, at, b"MANYLOGS");
            let found = survey(&path).unwrap();
            assert_eq!(found, Contents::Known(vec!["a Manylogs volume"]), "{sectors} {at}");
        }
    }
}

#[test]
fn anything_at_either_end_is_unknown_data_and_the_middle_is_not_looked_at() {
    let size = SECTORS * 512;
    for (at, expected) in [
        (1000, Contents::Unknown),
        ((1 << 20) - 1, Contents::Unknown),
        (size - 1, Contents::Unknown),
        (size / 2, Contents::Empty),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let path = image(dir.path(), SECTORS);
        put(&path, at, &[1]);
        assert_eq!(survey(&path).unwrap(), expected, "{at}");
    }
}

#[test]
fn tiny_files_are_no_trouble() {
    let dir = tempfile::tempdir().unwrap();
    for (length, expected) in
        [(0, Contents::Empty), (1, Contents::Unknown), (600, Contents::Unknown)]
    {
        let path = dir.path().join("tiny");
        std::fs::write(&path, vec![9; length]).unwrap();
        assert_eq!(survey(&path).unwrap(), expected);
    }
}
