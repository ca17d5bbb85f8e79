//! The results as a table.

use std::fmt::Write;

use super::gates::EpisodeResult;

/// One line for each run, and one for each gate.
#[must_use]
pub fn text(results: &[EpisodeResult]) -> String {
    let mut text = format!(
        "{:<10}{:<33}{:<15}{:>9}{:>10}{:>8}{:>8}{:>9}{:>9}{:>8}{:>8}{:>8}\n",
        "episode",
        "",
        "off-loading",
        "mean, ms",
        "p99, ms",
        "times",
        "times",
        "lenders",
        "p99, ms",
        "off, %",
        "held MB",
        "home, s"
    );
    for result in results {
        let figures = &result.figures;
        let large = if result.large { ", large" } else { "" };
        let _ = writeln!(
            text,
            "{:<10}{:<33}{:<15}{:>9.1}{:>10.1}{:>8.1}{:>8.1}{:>9.1}{:>9.1}{:>8.1}{:>8.0}{:>8.1}",
            format!("{}, seed {}", result.episode, result.seed),
            format!("{}, bursts {:.1} s{large}", result.on, result.burst_s),
            result.policy,
            figures.mean_ms,
            figures.p99_ms,
            result.mean_times,
            result.p99_times,
            figures.lenders_mean_ms,
            figures.lenders_p99_ms,
            figures.offloaded_percent,
            figures.held_max_mb,
            figures.home_after_s
        );
        for gate in &result.gates {
            let _ = writeln!(
                text,
                "{:<43}{:<25}{:>9.2}{:>10.2}  {}",
                "",
                gate.gate,
                gate.bound,
                gate.reached,
                if gate.holds { "holds" } else { "falls short" }
            );
        }
    }
    text
}
