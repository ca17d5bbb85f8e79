//! Whether there is memory and disk for what is asked for.

use std::path::Path;

use manylogs_lab::reproduce::Chosen;

use crate::failure::Failure;

/// Results of all figures.
const RESULT_BYTES: u64 = 64 << 20;

/// Refuses what does not fit, and says what it would take.
pub(super) fn check(wanted: &[Chosen], threads: usize, out: &Path) -> Result<(), Failure> {
    let figures = wanted.iter().flat_map(|one| &one.figures);
    let most = figures.max_by_key(|figure| figure.cost.memory_mb);
    if let (Some(figure), Some(free_mb)) = (most, available_mb()) {
        enough(&figure.name, figure.cost.memory_mb, threads, free_mb).map_err(Failure::Failed)?;
    }
    let stat = rustix::fs::statvfs(out).map_err(|error| Failure::at(out, &error.into()))?;
    let free = stat.f_bavail * stat.f_frsize;
    if free < RESULT_BYTES {
        return Err(Failure::Failed(format!(
            "{}: {} MB are free, and the results take up to {} MB: choose another --out",
            out.display(),
            free >> 20,
            RESULT_BYTES >> 20
        )));
    }
    Ok(())
}

fn enough(figure: &str, each_mb: u64, threads: usize, free_mb: u64) -> Result<(), String> {
    let needed = each_mb * threads as u64;
    if needed <= free_mb {
        return Ok(());
    }
    let hint = match free_mb / each_mb.max(1) {
        0 => format!("{figure} takes {each_mb} MB even with --threads 1"),
        fit => format!("--threads {fit} takes {} MB", fit * each_mb),
    };
    Err(format!(
        "{figure} takes {each_mb} MB for each run, {needed} MB with {threads} at a time, and \
         {free_mb} MB of memory are free: {hint}; --only leaves figures out"
    ))
}

/// Memory that can be had without swapping; `None` if the system does not say.
fn available_mb() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib >> 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_little_memory_says_what_it_would_take() {
        assert_eq!(enough("fig2a", 600, 2, 1200), Ok(()));
        let error = enough("fig2a", 600, 4, 1300).unwrap_err();
        assert!(error.contains("2400 MB with 4") && error.contains("--threads 2"), "{error}");
        assert!(enough("fig2a", 600, 4, 500).unwrap_err().contains("even with --threads 1"));
    }
}
