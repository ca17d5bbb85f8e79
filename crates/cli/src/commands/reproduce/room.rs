//! Checks that there is enough memory and disk space.

use std::path::Path;

use manylogs_lab::reproduce::{Chosen, Scale};

use crate::failure::Failure;

/// Bytes for the results of all figures.
const RESULT_BYTES: u64 = 64 << 20;

/// How many runs go at a time: as many as the user asked for, or else one for each of `cores`, or
/// fewer if memory is short. If the user's number does not fit, refuses it and names the memory
/// needed.
pub(super) fn threads(
    wanted: &[Chosen],
    scale: Scale,
    asked: Option<usize>,
    cores: usize,
) -> Result<usize, Failure> {
    let figures = wanted.iter().flat_map(|one| &one.figures);
    let most = figures.max_by_key(|figure| figure.cost.memory_mb);
    let (Some(figure), Some(free_mb)) = (most, available_mb()) else {
        return Ok(asked.unwrap_or(cores));
    };
    let each_mb = at_scale(figure.cost.memory_mb, scale);
    let threads = asked.unwrap_or_else(|| fitting(each_mb, cores, free_mb));
    enough(&figure.name, each_mb, threads, free_mb).map_err(Failure::Failed)?;
    Ok(threads)
}

/// Memory at a scale: one half is the same for each run, the other grows with its length.
fn at_scale(full_mb: u64, scale: Scale) -> u64 {
    let full = u64::from(Scale::FULL.number());
    full_mb.saturating_mul(full + u64::from(scale.number())).div_ceil(2 * full)
}

/// As many threads as memory has room for, at most `cores` and at least one.
fn fitting(each_mb: u64, cores: usize, free_mb: u64) -> usize {
    let fit = usize::try_from(free_mb / each_mb.max(1)).unwrap_or(cores);
    fit.clamp(1, cores.max(1))
}

/// Refuses a folder without space for the results.
pub(super) fn check_disk(out: &Path) -> Result<(), Failure> {
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
    let needed = each_mb.saturating_mul(threads as u64);
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

/// Memory available without swapping; `None` if the system does not say.
fn available_mb() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib >> 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_number_of_threads_fits_the_memory() {
        assert_eq!((fitting(600, 8, 2000), fitting(600, 2, 9000), fitting(600, 8, 100)), (3, 2, 1));
        assert_eq!(at_scale(600, Scale::FULL), 600);
        assert_eq!(at_scale(600, Scale::new(1).unwrap()), 330);
    }

    #[test]
    fn too_little_memory_says_what_it_would_take() {
        assert_eq!(enough("fig2a", 600, 2, 1200), Ok(()));
        let error = enough("fig2a", 600, 4, 1300).unwrap_err();
        assert!(error.contains("2400 MB with 4") && error.contains("--threads 2"), "{error}");
        assert!(enough("fig2a", 600, 4, 500).unwrap_err().contains("even with --threads 1"));
    }
}
