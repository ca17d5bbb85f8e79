//! The house rules that no other tool checks.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::path::{Path, PathBuf};

const LINE_COLUMNS_MAX: usize = 100;
/// Longest line of a paragraph in a document. Tables, commands and the program's own output have no
/// limit.
const PARAGRAPH_COLUMNS_MAX: usize = 120;
const WRITTEN_BY_PROGRAM: &str = "nothing here is edited by hand";
/// Longest source file, without its unit tests.
const FILE_LINES_MAX: usize = 400;
/// Third-party code, kept unchanged.
const VENDORED: [&str; 3] = ["uPlot.iife.min.js", "uPlot.min.css", "uPlot.LICENSE"];
const SOURCES: [&str; 8] = ["rs", "toml", "md", "sh", "py", "js", "css", "html"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn extension(path: &Path) -> &str {
    path.extension().and_then(|extension| extension.to_str()).unwrap_or("")
}

fn is_test(path: &Path) -> bool {
    path.components().any(|part| part.as_os_str() == "tests")
        || path.file_stem().is_some_and(|stem| stem == "tests")
}

/// Every source file of ours.
fn sources() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![root()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            let hidden = name.starts_with('.');
            let built = name.starts_with("target") || ["out", "corpus"].contains(&name.as_str());
            if path.is_dir() && !hidden && !built {
                open.push(path);
            } else if SOURCES.contains(&extension(&path)) && !VENDORED.contains(&name.as_str()) {
                found.push(path);
            }
        }
    }
    assert!(found.len() > 50, "the walk found the sources");
    found
}

/// Calls `check` with each line of each source file; returns the complaints with their places.
fn complaints(check: impl Fn(&Path, &str) -> Option<String>) -> Vec<String> {
    let mut found = Vec::new();
    for path in sources() {
        let text = fs::read_to_string(&path).unwrap();
        for (number, line) in text.lines().enumerate() {
            if let Some(complaint) = check(&path, line) {
                let file = path.strip_prefix(root()).unwrap().display();
                found.push(format!("{file}:{}: {complaint}", number + 1));
            }
        }
    }
    found
}

fn none(complaints: &[String]) {
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

#[test]
fn sources_are_ascii() {
    none(&complaints(|_, line| (!line.is_ascii()).then(|| "not ASCII".to_owned())));
}

#[test]
fn lines_are_short() {
    none(&complaints(|path, line| {
        // Tables in documents, data in profiles, and rows of real traces in tests have no limit.
        let code = ["rs", "js", "sh", "py"].contains(&extension(path)) && !is_test(path);
        let columns = line.chars().count();
        (code && columns > LINE_COLUMNS_MAX).then(|| format!("{columns} columns"))
    }));
}

#[test]
fn nothing_is_left_for_later() {
    let words = ["TODO", "FIXME", "HACK"];
    none(&complaints(|path, line| {
        let itself = path.file_name().is_some_and(|name| name == "tidy.rs");
        let word = words.iter().find(|word| line.contains(**word))?;
        (!itself).then(|| (*word).to_owned())
    }));
}

/// A test that cannot run says so through `manylogs_testkit::skip`, so that it is counted.
#[test]
fn skipped_tests_are_counted() {
    none(&complaints(|path, line| {
        let elsewhere =
            ["tests/tidy.rs", "testkit/src/lib.rs"].iter().all(|name| !path.ends_with(name));
        let uncounted = elsewhere && line.contains("println!(\"skipped: ");
        uncounted.then(|| "call manylogs_testkit::skip".to_owned())
    }));
}

#[test]
fn files_are_short() {
    let mut found = Vec::new();
    for path in sources() {
        if extension(&path) != "rs" || is_test(&path) {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let lines = text.lines().take_while(|line| !line.starts_with("#[cfg(test)]")).count();
        if lines > FILE_LINES_MAX {
            found.push(format!("{}: {lines} lines", path.display()));
        }
    }
    none(&found);
}

/// cargo refuses a feature of a crate that the programs do not name. Only `make lint`, the last
/// step of a long run, asks for such features.
#[test]
fn lint_asks_for_features_that_the_programs_name() {
    let makefile = fs::read_to_string(root().join("Makefile")).unwrap().replace("\\\n", " ");
    let words = |variable: &str| -> Vec<String> {
        let start = format!("{variable} := ");
        let line = makefile.lines().find_map(|line| line.strip_prefix(&start)).unwrap();
        line.split_whitespace().map(str::to_owned).collect()
    };
    let inner = words("INNER");
    let programs: String = ["cli", "servers/ublk"]
        .map(|name| fs::read_to_string(root().join(format!("crates/{name}/Cargo.toml"))).unwrap())
        .concat();
    let named = |name: &str| {
        let dependency = format!("\n{name}.workspace");
        let itself = format!("name = \"{name}\"");
        programs.contains(&dependency) || programs.contains(&itself)
    };
    let unknown: Vec<String> = words("PLANTED")
        .into_iter()
        .filter(|name| !inner.contains(name) && !named(name))
        .map(|name| format!("{name}: name it in INNER of the Makefile"))
        .collect();
    none(&unknown);
}

#[test]
fn paragraphs_are_wrapped() {
    let mut found = Vec::new();
    for path in sources().into_iter().filter(|path| extension(path) == "md") {
        let text = fs::read_to_string(&path).unwrap();
        if text.contains(WRITTEN_BY_PROGRAM) {
            continue;
        }
        let mut command = false;
        for (number, line) in text.lines().enumerate() {
            let line_begins = line.trim_start();
            command ^= line_begins.starts_with("```");
            let table = line_begins.starts_with('|') || line_begins.starts_with("<!--");
            if !command && !table && line.chars().count() > PARAGRAPH_COLUMNS_MAX {
                found.push(format!("{}:{}: wrap it at 120 columns", path.display(), number + 1));
            }
        }
    }
    none(&found);
}

#[test]
fn links_in_documents_lead_somewhere() {
    let mut found = Vec::new();
    for path in sources().into_iter().filter(|path| extension(path) == "md") {
        let text = fs::read_to_string(&path).unwrap();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = link.split('#').next().unwrap_or("");
            let outside = link.contains("://") || link.starts_with("mailto:") || file.is_empty();
            if !outside && !path.parent().unwrap().join(file).exists() {
                found.push(format!("{}: {link}", path.display()));
            }
        }
    }
    none(&found);
}

/// Checks the files and folders that documents, scripts and comments name. `*`, or a variable of a
/// script, stands for the rest of a name.
#[test]
fn files_that_are_named_exist() {
    let is_of_path = |c: char| c.is_ascii_alphanumeric() || "/._-*$".contains(c);
    let mut found = Vec::new();
    for path in sources() {
        // The change log may name files that no longer exist.
        if path.file_name() == Some("CHANGELOG.md".as_ref()) {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        for (at, _) in text.match_indices("crates/") {
            let named = text[at..].split(|c| !is_of_path(c)).next().unwrap();
            if !exists(named.trim_end_matches(['.', '/'])) {
                found.push(format!("{}: {named} is not there", path.display()));
            }
        }
    }
    none(&found);
}

fn exists(named: &str) -> bool {
    let Some((beginning, _)) = named.split_once(['*', '$']) else {
        return root().join(named).exists();
    };
    let (dir, beginning) = beginning.rsplit_once('/').unwrap_or(("", beginning));
    let is_it = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with(beginning);
    fs::read_dir(root().join(dir)).is_ok_and(|entries| entries.flatten().any(|entry| is_it(&entry)))
}
