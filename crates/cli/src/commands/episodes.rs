//! `manylogs episodes`: generated peaks in virtual time.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use manylogs_lab::episodes::{Episode, EpisodeResult, OursOptions, gates, text};
use manylogs_lab::replay::DriveSettings;
use serde_json::json;

use super::command_line;
use super::measured::{ended, stopped_by_ctrl_c, threads, write_figures};
use crate::args::episodes::EpisodesArgs;
use crate::failure::Failure;
use crate::output::{Output, print};

pub(crate) fn run(args: &EpisodesArgs) -> Result<(), Failure> {
    let profile = Arc::new(super::drive(&args.drive)?);
    let drive = Arc::new(DriveSettings::new(profile, args.drive_cache));
    let json = args.json.as_deref().map(Output::reserve).transpose()?;
    let (stop, threads) = (stopped_by_ctrl_c()?, threads(args.threads));
    let usual = OursOptions::default();
    let ours = OursOptions {
        threshold: args.threshold.unwrap_or(usual.threshold),
        calm: args.calm.unwrap_or(usual.calm),
        together: args.together.unwrap_or(usual.together),
    };
    let mut results = Vec::new();
    for episode in Episode::ALL.iter().filter(|episode| args.episode.contains(&episode.number)) {
        for &seed in &args.seed {
            if stop.load(Ordering::Relaxed) {
                continue;
            }
            let found = gates(*episode, &drive, (seed, ours), threads, &stop);
            results.extend(found.map_err(Failure::failed)?);
        }
    }
    let interrupted = stop.load(Ordering::Relaxed);
    print(&text(&results))?;
    write_figures(json, || Ok(all(&results, interrupted)? + "\n"))?;
    ended(interrupted)
}

fn all(results: &[EpisodeResult], interrupted: bool) -> serde_json::Result<String> {
    serde_json::to_string_pretty(&json!({
        "format": 1,
        "command": command_line(std::env::args()),
        "interrupted": interrupted,
        "runs": results,
    }))
}
