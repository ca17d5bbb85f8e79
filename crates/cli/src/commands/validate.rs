//! `manylogs drive validate`: the model against service times measured on the real drive.

use std::fmt::Write as _;
use std::path::Path;

use manylogs_disk::RandomTerms;
use manylogs_disk::validate::{Chosen, Gates, Score, TraceError, gates, read_trace, score};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::output::print;

const SEED: u64 = 1;

pub(crate) fn run(drive: &str, trace: &Path, json: bool) -> Result<(), Failure> {
    let profile = super::drive(drive)?;
    let records = read_trace(trace).map_err(|error| match &error {
        TraceError::Read { source, .. } => Failure::of_given(source, &error),
        _ => Failure::input(format!("{}: {error}", trace.display())),
    })?;
    let capacity = profile.capacity().0;
    if let Some(beyond) = records.iter().find(|record| record.extent.end().0 > capacity) {
        return Err(Failure::input(format!(
            "{}: request for {} is beyond {} (sectors: {capacity}): was it measured on another \
             drive?",
            trace.display(),
            beyond.extent,
            profile.name
        )));
    }
    let scored = |chosen, terms| score(&profile, &records, chosen, terms, SEED);
    let validation = Validation {
        drive: profile.name.clone(),
        all: scored(Chosen::All, RandomTerms::ON),
        odd: scored(Chosen::Odd, RandomTerms::ON),
        even: scored(Chosen::Even, RandomTerms::ON),
        physics: scored(Chosen::All, RandomTerms::OFF),
        gates: gates(&profile, SEED),
    };
    if json { print(&validation.json()?) } else { print(&validation.text()) }
}

/// What a validation found.
struct Validation {
    drive: String,
    all: Score,
    /// The records that the built-in profiles were fitted on, when these are the published ones.
    odd: Score,
    even: Score,
    /// Without random terms.
    physics: Score,
    gates: Gates,
}

impl Validation {
    fn json(&self) -> Result<String, Failure> {
        let value = |score: &Score| serde_json::to_value(score).map_err(Failure::failed);
        let mut all = value(&self.all)?;
        if let Value::Object(fields) = &mut all {
            fields.insert("drive".to_owned(), json!(self.drive));
            fields.insert("odd_records".to_owned(), value(&self.odd)?);
            fields.insert("even_records".to_owned(), value(&self.even)?);
            fields.insert("without_random_terms".to_owned(), value(&self.physics)?);
            fields.insert("gates".to_owned(), json!(self.gates));
        }
        let text = serde_json::to_string_pretty(&all).map_err(Failure::failed)?;
        Ok(text + "\n")
    }

    fn text(&self) -> String {
        let mut out = format!("{}: model against measurement, service times in ms\n\n", self.drive);
        let title = ["requests", "demerit", "reads", "writes", "mean error", "correlation"];
        let _ = writeln!(out, "{:<22}{}", "", title.map(|t| format!("{t:>12}")).concat());
        let rows = [
            ("all records", &self.all),
            ("odd records", &self.odd),
            ("even records", &self.even),
            ("without random terms", &self.physics),
        ];
        for (name, score) in rows {
            let _ = writeln!(
                out,
                "{name:<22}{:>12}{:>12.3}{:>12.3}{:>12.3}{:>12.3}{:>12.3}",
                score.all.requests,
                score.all.demerit_rms_ms,
                score.reads.demerit_rms_ms,
                score.writes.demerit_rms_ms,
                score.all.mean_error_ms,
                score.correlation
            );
        }
        self.distribution(&mut out);
        let gates = &self.gates;
        let _ = writeln!(
            out,
            "\nsequential read: {:.1} MB/s outer, {:.1} MB/s inner\nrandom 4 KiB reads/s: {:.0} at \
             depth 1, {:.0} at depth 32 ({:.2} times)",
            gates.sequential_outer_mb_s,
            gates.sequential_inner_mb_s,
            gates.random_read_iops_depth_1,
            gates.random_read_iops_depth_32,
            gates.queueing_gain
        );
        out
    }

    fn distribution(&self, out: &mut String) {
        let _ = writeln!(out, "\n{:>10}{:>12}{:>12}", "quantile", "measured", "modelled");
        for q in &self.all.all.quantiles {
            let _ =
                writeln!(out, "{:>8} %{:>12.3}{:>12.3}", q.percent, q.measured_ms, q.modelled_ms);
        }
        let _ =
            writeln!(out, "\n{:>20}{:>12}{:>12}", "seek up to (cyl.)", "measured", "mean error");
        for decile in &self.all.deciles {
            let _ = writeln!(
                out,
                "{:>20}{:>12.3}{:>12.3}",
                decile.distance_max, decile.measured_ms, decile.mean_error_ms
            );
        }
    }
}
