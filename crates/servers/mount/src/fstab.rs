//! How the running system uses the disk: `/etc/fstab`, and the root file system.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::MountOptions;

/// The names by which `/etc/fstab` may call a file system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// The device or image, without symbolic links.
    pub path: PathBuf,
    /// As `blkid` writes it.
    pub uuid: String,
    /// Empty if there is none.
    pub label: String,
}

/// A line of `/etc/fstab` by which the system mounts a disk as ext4.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FstabLine {
    /// Counted from 1.
    pub number: usize,
    /// The present text.
    pub text: String,
    /// The line that mounts it as MLFS instead.
    pub for_mlfs: String,
}

/// Whether the root file system lies on `path`.
#[must_use]
pub fn is_root_disk(path: &Path) -> bool {
    let (Ok(disk), Ok(root)) = (fs::metadata(path), fs::metadata("/")) else { return false };
    disk.rdev() != 0 && disk.rdev() == root.dev()
}

/// The lines of `fstab` that name the file system and say that it is ext4, or leave that open.
#[must_use]
pub fn fstab_lines(fstab: &str, names: &Names) -> Vec<FstabLine> {
    let line = |(number, text): (usize, &str)| {
        let fields: Vec<&str> = text.split_whitespace().collect();
        let [spec, target, kind, options, ..] = *fields.as_slice() else { return None };
        let is_ext4 = kind.split(',').any(|kind| ["ext2", "ext3", "ext4", "auto"].contains(&kind));
        let is_meant = !spec.starts_with('#') && is_ext4 && names.is_called(spec);
        is_meant.then(|| FstabLine {
            number: number + 1,
            text: text.to_owned(),
            for_mlfs: format!("{spec}  {target}  fuse.manylogs  {}  0 0", kept(options)),
        })
    };
    fstab.lines().enumerate().filter_map(line).collect()
}

/// Those options that MLFS has as well. Modes of ext4's own journal are dropped: an adopted file
/// system has none of them.
fn kept(options: &str) -> String {
    let is_known = |option: &&str| {
        let mut options = MountOptions::default();
        let is_taken = options.add(option).is_ok() && options.ignored().is_empty();
        is_taken && !option.starts_with("data=")
    };
    let kept: Vec<&str> = options.split(',').filter(is_known).collect();
    if kept.is_empty() { "defaults".to_owned() } else { kept.join(",") }
}

impl Names {
    /// Whether the first field of a line means this file system.
    fn is_called(&self, spec: &str) -> bool {
        match spec.split_once('=') {
            Some(("UUID", uuid)) => unquoted(uuid).eq_ignore_ascii_case(&self.uuid),
            Some(("LABEL", label)) => !self.label.is_empty() && unquoted(label) == self.label,
            Some(("PARTUUID", part)) => self.is_link("by-partuuid", unquoted(part)),
            Some(("PARTLABEL", part)) => self.is_link("by-partlabel", unquoted(part)),
            _ => fs::canonicalize(spec).is_ok_and(|path| path == self.path),
        }
    }

    fn is_link(&self, kind: &str, name: &str) -> bool {
        let link = Path::new("/dev/disk").join(kind).join(name.to_lowercase());
        fs::canonicalize(link).is_ok_and(|path| path == self.path)
    }
}

fn unquoted(text: &str) -> &str {
    text.trim_matches('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_mount_it_as_ext4_are_found_by_every_name() {
        let names = Names {
            path: "/dev/null".into(),
            uuid: "00112233-4455-6677-8899-aabbccddeeff".to_owned(),
            label: "srv".to_owned(),
        };
        let fstab = "# comment\n\
            UUID=00112233-4455-6677-8899-AABBCCDDEEFF /srv ext4 \
            defaults,barrier=0,data=ordered,nofail 0 2\n\
            LABEL=\"srv\" /a auto ro 0 0\n\
            LABEL=other /b ext4 defaults 0 2\n\
            /dev/null /c ext3 barrier=0\n\
            /dev/null /d fuse.manylogs defaults 0 0\n\
            #/dev/null /e ext4 defaults\n\
            /dev/zero /f ext4 defaults\n\
            proc /proc proc defaults 0 0\n";
        let lines = fstab_lines(fstab, &names);
        let numbers: Vec<usize> = lines.iter().map(|line| line.number).collect();
        assert_eq!(numbers, [2, 3, 5]);
        let uuid = "UUID=00112233-4455-6677-8899-AABBCCDDEEFF";
        let wanted = format!("{uuid}  /srv  fuse.manylogs  defaults,nofail  0 0");
        assert_eq!(lines[0].for_mlfs, wanted);
        assert_eq!(lines[2].for_mlfs, "/dev/null  /c  fuse.manylogs  defaults  0 0");
    }
}
