//! Helpers that the tests of several crates share.

#![allow(clippy::print_stdout, reason = "a test may tell what it found")]

use std::ffi::OsStr;
use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;

/// The environment variable that names the file in which skipped tests are noted.
pub const SKIPPED: &str = "MANYLOGS_SKIPPED";
/// The environment variable that names the file for [`remark`].
pub const REMARKS: &str = "MANYLOGS_REMARKS";

/// Reports that the calling test cannot run here, and why: `needs mkfs.ext4`.
///
/// The test returns after that, and counts as passed for cargo. To show that it did not run, a line
/// is added to the file that [`SKIPPED`] names: the program, the test and the reason, separated by
/// tabs. `make test` counts these lines.
///
/// # Panics
///
/// If the file cannot be written: otherwise nobody would notice the skipped test.
pub fn skip(reason: impl Display) {
    eprintln!("skipped: {reason}");
    note_in(SKIPPED, &reason.to_string());
}

/// Tells whoever runs the tests what deserves a look though the calling test passes.
///
/// What a test that passes prints is not shown. A line is added to the file that [`REMARKS`] names,
/// as [`skip`] does; `make test` shows these lines at its end.
///
/// # Panics
///
/// If the file cannot be written.
pub fn remark(what: impl Display) {
    println!("{what}");
    note_in(REMARKS, &what.to_string());
}

fn note_in(variable: &str, text: &str) {
    let Some(file) = std::env::var_os(variable).filter(|file| !file.is_empty()) else { return };
    if let Err(error) = note(Path::new(&file), text) {
        panic!("{} ({variable}) cannot be written: {error}", file.display());
    }
}

fn note(file: &Path, reason: &str) -> io::Result<()> {
    let program = std::env::current_exe()?;
    let program = program.file_stem().and_then(OsStr::to_str).unwrap_or_default();
    // Cargo appends a hash to the name.
    let program = program.rsplit_once('-').map_or(program, |(name, _)| name);
    let thread = std::thread::current();
    let test = thread.name().unwrap_or_default();
    let line = format!("{program}\t{test}\t{reason}\n");
    // One write, so that lines of programs that run at the same time do not mix.
    OpenOptions::new().create(true).append(true).open(file)?.write_all(line.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_skipped_is_noted_with_its_reason() {
        let file = std::env::temp_dir().join(format!("manylogs-skipped-{}", std::process::id()));
        note(&file, "needs a moon").unwrap();
        note(&file, "needs a sun").unwrap();
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        let test = "tests::what_is_skipped_is_noted_with_its_reason";
        let lines = ["needs a moon", "needs a sun"]
            .map(|reason| format!("manylogs_testkit\t{test}\t{reason}\n"));
        assert_eq!(text, lines.concat());
    }
}
