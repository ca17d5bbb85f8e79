//! Checks that the figures in the documents are those that the program prints.
//!
//! Between `<!-- figures: ARGUMENTS -->` and `<!-- end of figures -->` stands the output of the
//! command with these arguments, run in the repository's root. `FIGURES=write` puts it there
//! (`make figures`); otherwise it must be there.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::{Path, PathBuf};
use std::process::Command;

const BEGIN: &str = "<!-- figures: ";
const BEGIN_ENDS: &str = " -->\n";
const END: &str = "<!-- end of figures -->";
const DOCUMENTS: [&str; 3] = ["README.md", "docs/results/replays.md", "docs/results/mlfs.md"];
/// Lines that differ from run to run, or name files.
const NOT_FIGURES: [&str; 4] = ["computing took: ", "report: ", "figures: ", "rows: "];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The command's output in the form of a document.
fn printed(arguments: &str) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_manylogs"))
        .args(arguments.split_whitespace())
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{arguments}: {output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let kept = text.lines().filter(|line| !NOT_FIGURES.iter().any(|not| line.starts_with(not)));
    let kept = kept.collect::<Vec<_>>().join("\n");
    match kept.trim() {
        table if table.starts_with('|') => format!("{table}\n"),
        other => format!("```\n{other}\n```\n"),
    }
}

/// `text` with each block renewed from the program's output, and the number of blocks.
fn renewed(text: &str) -> (String, usize) {
    let (mut out, mut rest, mut blocks) = (String::new(), text, 0);
    while let Some(at) = rest.find(BEGIN) {
        let (before, from) = rest.split_at(at + BEGIN.len());
        let (arguments, from) = from.split_once(BEGIN_ENDS).unwrap();
        let (_, after) = from.split_once(END).unwrap();
        out += &format!("{before}{arguments}{BEGIN_ENDS}{}{END}", printed(arguments));
        rest = after;
        blocks += 1;
    }
    (out + rest, blocks)
}

#[test]
fn documents_show_what_the_program_prints() {
    let mut found = 0;
    for name in DOCUMENTS {
        let path = root().join(name);
        let text = std::fs::read_to_string(&path).unwrap();
        let (renewed, blocks) = renewed(&text);
        found += blocks;
        if std::env::var_os("FIGURES").is_some_and(|what| what == "write") {
            std::fs::write(&path, renewed).unwrap();
            continue;
        }
        let lines = text.lines().zip(renewed.lines());
        let other = lines.filter(|(old, new)| old != new).map(|(old, new)| format!("{old}\n{new}"));
        let other: Vec<String> = other.take(5).collect();
        assert!(
            text == renewed,
            "{name} is not what is printed; make figures:\n{}",
            other.join("\n")
        );
    }
    assert!(found >= 3, "{found} blocks");
}
