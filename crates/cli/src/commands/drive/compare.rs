//! `manylogs drive compare`: two drives side by side.

use std::fmt::Write as _;
use std::sync::Arc;

use manylogs_disk::Profile;
use manylogs_disk::profile::Sheet;
use manylogs_disk::profile::sheet::Key;
use manylogs_disk::validate::{gates, random_read_iops};
use manylogs_lab::advise::plain_gain;
use manylogs_lab::stats::round3;
use serde_json::{Map, Value, json};

use crate::failure::Failure;
use crate::output::print;

const SEED: u64 = 1;
/// Depths of the queue of random reads.
const DEPTHS: [u32; 3] = [1, 4, 32];

/// One figure, of both drives.
struct Row {
    name: String,
    values: [Option<f64>; 2],
}

impl Row {
    /// The second value divided by the first.
    fn ratio(&self) -> Option<f64> {
        let [first, second] = self.values;
        Some(round3(second? / first.filter(|first| *first > 0.0)?))
    }
}

pub(crate) fn run(first: &str, second: &str, json: bool) -> Result<(), Failure> {
    let drives = [crate::commands::drive(first)?, crate::commands::drive(second)?];
    let columns = drives.each_ref().map(figures);
    let [a, b] = columns;
    let rows: Vec<Row> =
        a?.into_iter().zip(b?).map(|((name, a), (_, b))| Row { name, values: [a, b] }).collect();
    if json { print(&as_json(&drives, &rows)?) } else { print(&text(&drives, &rows)) }
}

type Figures = Vec<(String, Option<f64>)>;

fn figures(profile: &Profile) -> Result<Figures, Failure> {
    let gates = gates(profile, SEED);
    let sheet = Sheet::of(profile);
    let mut found = vec![
        ("sequential_outer_mb_s".to_owned(), Some(gates.sequential_outer_mb_s)),
        ("sequential_inner_mb_s".to_owned(), Some(gates.sequential_inner_mb_s)),
        ("track_to_track_ms".to_owned(), sheet.value(Key::TrackToTrack)),
        ("average_seek_ms".to_owned(), sheet.value(Key::Seek)),
        ("full_stroke_ms".to_owned(), sheet.value(Key::FullStroke)),
    ];
    for depth in DEPTHS {
        let reads = random_read_iops(profile, SEED, depth);
        found.push((format!("random_reads_per_second_depth_{depth}"), Some(reads)));
    }
    let gain = plain_gain(Arc::new(profile.clone()), SEED)
        .map_err(|error| crate::commands::load::replay_failure(&error))?;
    found.push(("gain_of_mlb".to_owned(), Some(gain)));
    Ok(found.into_iter().map(|(name, value)| (name, value.map(round3))).collect())
}

fn text(drives: &[Profile; 2], rows: &[Row]) -> String {
    let [first, second] = drives;
    let title = ["figure", &first.name, &second.name, "second / first"];
    let mut out = format!("{:<34}{:>24}{:>24}{:>16}\n", title[0], title[1], title[2], title[3]);
    let shown = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |v| format!("{v:.2}"));
    for row in rows {
        let [a, b] = row.values.map(shown);
        let _ = writeln!(out, "{:<34}{a:>24}{b:>24}{:>16}", row.name, shown(row.ratio()));
    }
    out + "\ngain_of_mlb: how many times sooner data is durable than on the plain drive, with a \
           sequential reader beside small random writes\n"
}

fn as_json(drives: &[Profile; 2], rows: &[Row]) -> Result<String, Failure> {
    let figure = |row: &Row| {
        let [first, second] = row.values;
        (row.name.clone(), json!({ "first": first, "second": second, "ratio": row.ratio() }))
    };
    let figures: Map<String, Value> = rows.iter().map(figure).collect();
    let value = json!({
        "format": 1,
        "first": drives[0].name,
        "second": drives[1].name,
        "figures": figures,
    });
    let text = serde_json::to_string_pretty(&value).map_err(Failure::failed)?;
    Ok(text + "\n")
}
