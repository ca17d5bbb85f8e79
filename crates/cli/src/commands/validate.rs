//! `manylogs drive validate`: compares the model with its profile's bars, and with service times
//! measured on the real drive.

use std::fmt::Write as _;
use std::path::Path;

use manylogs_disk::validate::{
    Bar, Chosen, Gates, Score, TraceError, gates, own_bars, read_trace, recorded_bars, score,
};
use manylogs_disk::{Profile, RandomTerms};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::output::print;

const SEED: u64 = 1;

pub(crate) fn run(drive: &str, trace: Option<&Path>, json: bool) -> Result<(), Failure> {
    let profile = super::drive(drive)?;
    let scored = trace.map(|trace| scored(&profile, trace)).transpose()?;
    let gates = gates(&profile, SEED);
    let mut bars = own_bars(&profile, &gates, SEED);
    if let Some(scored) = &scored {
        let held = recorded_bars(&profile, &scored.even, &scored.physics);
        bars.splice(0..0, held);
    }
    let validation = Validation { drive: profile.name.clone(), scored, gates, bars };
    let text = if json { validation.json()? } else { validation.text() };
    print(&text)?;
    match validation.bars.iter().filter(|bar| !bar.passed).map(|bar| bar.figure).collect::<Vec<_>>()
    {
        missed if missed.is_empty() => Ok(()),
        missed => Err(Failure::failed(format!("{drive} misses its bars: {}", missed.join(", ")))),
    }
}

fn scored(profile: &Profile, trace: &Path) -> Result<Scored, Failure> {
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
    let scored = |chosen, terms| score(profile, &records, chosen, terms, SEED);
    Ok(Scored {
        all: scored(Chosen::All, RandomTerms::ON),
        odd: scored(Chosen::Odd, RandomTerms::ON),
        even: scored(Chosen::Even, RandomTerms::ON),
        physics: scored(Chosen::All, RandomTerms::OFF),
    })
}

/// The result of a validation.
struct Validation {
    drive: String,
    scored: Option<Scored>,
    gates: Gates,
    bars: Vec<Bar>,
}

/// The model compared with a recording.
struct Scored {
    all: Score,
    /// Odd records: in the published recording the built-in profiles were fitted on these.
    odd: Score,
    even: Score,
    /// The model without random terms.
    physics: Score,
}

impl Validation {
    fn json(&self) -> Result<String, Failure> {
        let value = |score: &Score| serde_json::to_value(score).map_err(Failure::failed);
        let mut all = match &self.scored {
            Some(scored) => value(&scored.all)?,
            None => json!({}),
        };
        if let Value::Object(fields) = &mut all {
            fields.insert("drive".to_owned(), json!(self.drive));
            if let Some(scored) = &self.scored {
                fields.insert("odd_records".to_owned(), value(&scored.odd)?);
                fields.insert("even_records".to_owned(), value(&scored.even)?);
                fields.insert("without_random_terms".to_owned(), value(&scored.physics)?);
            }
            fields.insert("gates".to_owned(), json!(self.gates));
            fields.insert("bars".to_owned(), json!(self.bars));
        }
        let text = serde_json::to_string_pretty(&all).map_err(Failure::failed)?;
        Ok(text + "\n")
    }

    fn text(&self) -> String {
        let mut out = String::new();
        if let Some(scored) = &self.scored {
            let _ =
                writeln!(out, "{}: model against measurement, service times in ms\n", self.drive);
            scored.write(&mut out);
            out.push('\n');
        }
        let gates = &self.gates;
        let _ = writeln!(
            out,
            "sequential read: {:.1} MB/s outer, {:.1} MB/s inner\nrandom 4 KiB reads/s: {:.0} at \
             depth 1, {:.0} at depth 32 ({:.2} times)\n",
            gates.sequential_outer_mb_s,
            gates.sequential_inner_mb_s,
            gates.random_read_iops_depth_1,
            gates.random_read_iops_depth_32,
            gates.queueing_gain
        );
        if self.bars.is_empty() {
            let _ = writeln!(
                out,
                "the profile has no bars: nothing published or measured to hold it against"
            );
            return out;
        }
        let _ = writeln!(out, "{:<30}{:>10}{:>22}", "bar", "modelled", "passes between");
        for bar in &self.bars {
            let word = if bar.passed { "" } else { "  MISSED" };
            let between = format!("{:.2} and {:.2}", bar.least, bar.greatest);
            let _ = writeln!(out, "{:<30}{:>10.2}{between:>22}{word}", bar.figure, bar.value);
        }
        out
    }
}

impl Scored {
    fn write(&self, out: &mut String) {
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
        self.distribution(out);
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
