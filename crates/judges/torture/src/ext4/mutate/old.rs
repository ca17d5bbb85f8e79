//! An image with structures that the kernel or older kernels made: files mapped by block numbers,
//! and extended attributes in inodes and blocks. debugfs makes them.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::ext4::images::command;

/// Offsets of data in the file: in its own map, one level deep, two levels deep.
const PLACES: [u64; 4] = [0, 8192, 120_000, 4_800_000];
/// Bytes of a value that needs a block.
const LARGE_VALUE: usize = 2700;

/// Adds these structures to an image file.
///
/// # Errors
/// If debugfs is missing or fails.
pub(in crate::ext4) fn add_old_things(image: &Path, dir: &Path) -> io::Result<()> {
    let (content, value, script) = (dir.join("content"), dir.join("value"), dir.join("script"));
    let file = File::create(&content)?;
    for place in PLACES {
        file.write_all_at(&place.to_le_bytes().repeat(9), place)?;
    }
    std::fs::write(&value, "v".repeat(LARGE_VALUE))?;
    let (content, value) = (content.display(), value.display());
    let mut commands = File::create(&script)?;
    writeln!(commands, "feature -extents")?;
    writeln!(commands, "write {content} mapped")?;
    writeln!(commands, "ea_set mapped user.small value")?;
    writeln!(commands, "ea_set -f {value} mapped user.large")?;
    writeln!(commands, "symlink slow {}", "l".repeat(100))?;
    writeln!(commands, "mkdir old\ncd old\nwrite {value} inner")?;
    writeln!(commands, "ea_set inner user.other 1234\nea_set . user.third 5\nfeature extents")?;
    let out = command("debugfs").arg("-w").arg("-f").arg(&script).arg(image).output()?;
    if out.status.success() {
        return Ok(());
    }
    Err(io::Error::other(format!("debugfs: {}", String::from_utf8_lossy(&out.stderr))))
}
