//! Figures of the papers from end to end, at the smallest scale.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::path::Path;

use common::{Outcome, Place, text};
use serde_json::Value;

/// Figures that take a second or two in a debug build, and need no other program.
const CHEAP: &str = "intro,slides";
const CHEAP_GECKO: &str = "fig2,table1";

fn reproduce(place: &Place, more: &[&str]) -> Outcome {
    reproduce_paper(place, "manylogs", more)
}

fn reproduce_paper(place: &Place, paper: &str, more: &[&str]) -> Outcome {
    let args = ["reproduce", paper, "--scale", "1", "--out", "out"];
    place.run(&[&args[..], more].concat())
}

fn claims(place: &Place) -> Value {
    let text = std::fs::read_to_string(place.path("out/claims.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

#[test]
fn the_list_says_what_there_is_and_what_is_not() {
    let outcome = Place::new().run(&["reproduce", "--list"]);
    let said = &outcome.succeeds().stdout;
    for words in ["MSST", "OSDI", "fig13b", "fig6a", "Fig. 7a", "Fig. 3a", "not reproduced"] {
        assert!(said.contains(words), "{words}: {said}");
    }
}

#[test]
fn what_is_not_known_is_refused_with_what_there_is() {
    let place = Place::new();
    reproduce(&place, &["--only", "fig9"]).fails(2, &["unknown figure `fig9`", "fig2a"]);
    place.run(&["reproduce", "linux"]).fails(2, &["unknown paper `linux`", "manylogs, everest"]);
}

#[test]
fn a_figure_is_beside_the_papers_and_the_same_each_time() {
    let place = Place::new();
    let first = reproduce(&place, &["--only", CHEAP, "--markdown", "first.md"]);
    let said = &first.succeeds().stdout;
    for words in ["ratio", "HELD", "section I: 25 % lost", "NOT TESTABLE HERE each has half"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    let claims = claims(&place);
    let figures = claims["figures"].as_array().unwrap();
    assert_eq!(figures.len(), 2);
    let standing = |figure: &Value| figure["claims"][0]["standing"].as_str().unwrap().to_owned();
    assert_eq!(standing(&figures[1]), "not-testable");
    let html = std::fs::read_to_string(place.path("out/figures.html")).unwrap();
    assert!(html.contains("<polyline") && !html.contains("src="), "one page, and no other file");
    let parquet = std::fs::read(place.path("out/runs.parquet")).unwrap();
    assert!(parquet.starts_with(b"PAR1"));
    // No run is repeated, and a run in another folder gives the same bytes.
    let again = reproduce(&place, &["--only", CHEAP, "--markdown", "again.md"]);
    assert!(again.succeeds().stdout.contains("computing took: 0 runs"), "{again:?}");
    let anew = ["--only", CHEAP, "--markdown", "anew.md", "--out", "anew"];
    let args = [&["reproduce", "manylogs", "--scale", "1", "--threads", "1"][..], &anew].concat();
    place.run(&args).succeeds();
    let read = |name: &str| std::fs::read(place.path(name)).unwrap();
    assert!(read("first.md") == read("again.md") && read("first.md") == read("anew.md"));
    assert_eq!(read("out/claims.json"), read("anew/claims.json"));
    assert_eq!(read("out/runs.parquet"), read("anew/runs.parquet"));
}

/// Figures of other papers that take a second or two where nothing is optimised.
const CHEAP_OF_OTHERS: [(&str, &str); 1] = [("everest", "fig9,fig12,fig13c")];

#[test]
fn each_paper_has_figures_whose_claims_are_told_and_a_document() {
    for (paper, cheap) in CHEAP_OF_OTHERS {
        let place = Place::new();
        let args = ["reproduce", paper, "--scale", "1", "--out", "out", "--only", cheap];
        let outcome = place.run(&[&args[..], &["--markdown", "new.md"]].concat());
        let said = &outcome.succeeds().stdout;
        assert!(said.contains("HELD") && said.contains("ratio"), "{said}");
        let new = std::fs::read_to_string(place.path("new.md")).unwrap();
        assert!(new.contains(&format!("`manylogs reproduce {paper} --only ")), "{new}");
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results");
        let read = |name: String| std::fs::read_to_string(root.join(name)).unwrap();
        let document = read(format!("{paper}-smallest.md"));
        let known = sections(&document);
        for section in sections(&new).iter().filter(|section| !section.starts_with("Not repr")) {
            assert!(known.contains(section), "make reproduce-short writes it anew:\n{section}");
        }
        assert!(read(format!("{paper}.md")).contains("at scale 10 of 10"));
    }
}

/// Sections of a document by their titles.
fn sections(document: &str) -> Vec<&str> {
    document.split("\n## ").skip(1).map(str::trim_end).collect()
}

#[test]
fn the_documents_are_what_the_program_writes() {
    let place = Place::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for (paper, cheap) in [("manylogs", CHEAP), ("gecko", CHEAP_GECKO)] {
        reproduce_paper(&place, paper, &["--only", cheap, "--markdown", "new.md"]).succeeds();
        let new = std::fs::read_to_string(place.path("new.md")).unwrap();
        let path = root.join(format!("docs/results/{paper}-smallest.md"));
        let document = std::fs::read_to_string(path).unwrap();
        let known = sections(&document);
        for section in sections(&new).iter().filter(|section| !section.starts_with("Not repr")) {
            assert!(known.contains(section), "make reproduce-short writes it anew:\n{section}");
        }
        // The other document is of the full scale, which takes minutes.
        let full = std::fs::read_to_string(root.join(format!("docs/results/{paper}.md"))).unwrap();
        let begins =
            format!("# Figures of the paper `{paper}`\n\nWritten by `manylogs reproduce {paper} ");
        assert!(full.starts_with(&begins));
    }
}

#[test]
fn a_folder_with_some_traces_is_used_for_these() {
    let place = Place::new();
    std::fs::create_dir_all(place.path("snia/RadiusAuthentication/Traces")).unwrap();
    let dir = "snia/RadiusAuthentication/Traces";
    let head = "BeginHeader\n\
        DiskRead, TimeStamp, Process Name ( PID), ThreadID, IrpPtr, ByteOffset, IOSize, \
        ElapsedTime, DiskNum, IrpFlags, DiskSvcTime, I/O Pri, VolSnap, FileObject, FileName\n\
        DiskWrite, TimeStamp, Process Name ( PID), ThreadID, IrpPtr, ByteOffset, IOSize, \
        ElapsedTime, DiskNum, IrpFlags, DiskSvcTime, I/O Pri, VolSnap, FileObject, FileName\n\
        EndHeader\n";
    let line = |n: u64| {
        let (op, at) =
            (if n.is_multiple_of(3) { "DiskRead" } else { "DiskWrite" }, n * 20_000 + 900);
        format!(
            "{op}, {at}, x ( 4), 8, 0x1, 0x{:010x}, 0x00001000, 800, 0, 0x1, 700, 3, 0, 0x2, \"f\"\n",
            n * 7919 % 100_000 * 4096
        )
    };
    let body: String = (0..3_000).map(line).collect();
    place.file(&format!("{dir}/RAD-AS.1.trace.csv"), head.to_owned() + &body);
    place.file(&format!("{dir}/RAD-AS.2.trace.csv"), "BeginHeader\n");
    place.file(&format!("{dir}/other.csv"), body);
    let more = ["--only", "fig7b", "--traces", "snia"];
    let outcome = reproduce(&place, &more);
    assert!(matches!(outcome.code, Some(0 | 1)), "{outcome:?}");
    for words in [
        "RAD-AS.2.trace.csv: has 12 bytes: it is cut short",
        "other.csv: does not begin as a trace of Windows",
        "T1 (LiveMapsBackEnd) is not there: generated requests stand in for it",
    ] {
        assert!(outcome.stderr.contains(words), "{words}: {}", outcome.stderr);
    }
    let html = std::fs::read_to_string(place.path("out/figures.html")).unwrap();
    assert!(
        html.contains("T9: RAD-AS.1.trace.csv") && !html.contains("RadiusAuthentication/Traces")
    );
    std::fs::create_dir(place.path("empty")).unwrap();
    let none = reproduce(&place, &["--only", "fig7b", "--traces", "empty"]);
    none.fails(2, &["none of the paper's traces", "LiveMapsBackEnd"]);
    reproduce(&place, &["--only", "fig7b", "--traces", text(&place.path("no"))]).fails(2, &["no"]);
}

#[test]
fn a_faulty_file_of_a_figure_is_named_with_its_field() {
    let place = Place::new();
    std::fs::create_dir_all(place.path("own/manylogs")).unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../figures/manylogs");
    let read = |name: &str| std::fs::read_to_string(root.join(name)).unwrap();
    place.file("own/manylogs/paper.toml", read("paper.toml"));
    let right = read("fig7a.toml");
    for (from, to, words) in [
        ("constellation-es3", "no-such-drive", "drives: unknown drive `no-such-drive`"),
        ("policies = [\"mlb-256\"]", "policies = [\"mlx\"]", "policies: "),
        ("[300, 3600]", "[60, 30]", "window-s = [60, 30]"),
        ("[\"T1\", ", "[\"T99\", ", "loads: unknown trace \"T99\""),
        ("[[ratio]]", "[[ratios]]", "unknown field `ratios`"),
        (
            "series = \"checkpoint\"",
            "series = \"chekpoint\"",
            "no part has the series \"chekpoint\"",
        ),
        ("[[part]]", "parts-of = [\"fig99\"]\n[[part]]", "parts-of: there is no figure `fig99`"),
    ] {
        assert!(right.contains(from), "{from}");
        // A key of the figure itself comes before its tables.
        let text = match to.strip_suffix("\n[[part]]") {
            Some(key) => format!("{key}\n{right}"),
            None => right.replace(from, to),
        };
        place.file("own/manylogs/fig7a.toml", text);
        let outcome = reproduce(&place, &["--figures", "own"]);
        outcome.fails(2, &["own/manylogs/fig7a.toml", words]);
    }
}

#[test]
fn an_older_folder_of_results_is_run_again() {
    let place = Place::new();
    std::fs::create_dir(place.path("out")).unwrap();
    place.file("out/runs.jsonl", "{\"manylogs_rows\":2,\"program\":\"0.0.1\"}\n{\"key\":1}\n");
    let outcome = reproduce(&place, &["--only", "slides"]);
    outcome.succeeds();
    assert!(outcome.stderr.contains("1 rows are of another version"), "{}", outcome.stderr);
}
