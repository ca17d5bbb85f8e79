//! The hash of a trace's content.

use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use manylogs_workload::files_of;

use super::key::hash_of;
use crate::prepare::is_generated;

/// Hash of a trace's content. Files of one name with different content have different hashes; a
/// file and its copy have the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Content(String);

impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Reads the trace at `path`, with the other files that belong to it (those of other CPUs), from
/// end to end. For a generated trace it is the name.
///
/// # Errors
/// If a file cannot be read; the error names it.
pub fn content_of(path: &Path) -> Result<Content, (PathBuf, io::Error)> {
    if is_generated(path) {
        return Ok(Content(format!("generated {}", path.display())));
    }
    let files = files_of(path).map_err(|error| (path.to_owned(), error))?;
    let mut text = String::new();
    for file in files {
        let hash = File::open(&file).and_then(hash_of).map_err(|error| (file.clone(), error))?;
        // Only the name of a file says to which CPU it belongs.
        let cpu = file.extension().filter(|_| file != path).unwrap_or_default();
        text += &format!("{hash:032x}{} ", cpu.display());
    }
    Ok(Content(text.trim_end().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_counts_and_not_the_name() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, text).unwrap();
            content_of(&path).unwrap()
        };
        let first = file("a/sdb.trace", "1");
        assert_ne!(first, file("b/sdb.trace", "2"));
        assert_eq!(first, file("copy", "1"));
        assert_ne!(first, file("a/sdb.trace", "3"), "it changed");
        let (path, _) = content_of(&dir.path().join("none")).unwrap_err();
        assert!(path.ends_with("none"));
    }

    #[test]
    fn files_of_other_cpus_belong_to_a_trace() {
        let dir = tempfile::tempdir().unwrap();
        let file = |cpu: u32, text: &str| {
            let path = dir.path().join(format!("sdb.blktrace.{cpu}"));
            std::fs::write(&path, text).unwrap();
            path
        };
        let first = file(0, "a");
        let alone = content_of(&first).unwrap();
        file(1, "b");
        let both = content_of(&first).unwrap();
        assert_ne!(alone, both);
        file(1, "c");
        assert_ne!(both, content_of(&first).unwrap());
        assert_ne!(content_of(dir.path()).unwrap(), alone);
    }
}
