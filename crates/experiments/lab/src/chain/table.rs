//! The results as a table.

use std::fmt::Write;

use super::gates::GateResult;

fn left(seconds: f64) -> String {
    if seconds > 0.0 { format!("left in {seconds:.1} s, ") } else { String::new() }
}

/// One line for each gate.
#[must_use]
pub fn text(results: &[GateResult]) -> String {
    let mut text = format!(
        "{:<14}{:<6}{:<46}{:>6}{:>8}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}  {}\n",
        "drive",
        "cache",
        "",
        "gate",
        "reached",
        "MB/s",
        "B, MB/s",
        "p99, ms",
        "max, ms",
        "appended",
        "B/block",
        ""
    );
    for result in results {
        let figures = &result.figures;
        let most = result.appended_most;
        let most = most.map_or(String::new(), |most| format!("appended up to {most:.2}, "));
        let notes =
            result.p99_times.map_or(String::new(), |times| format!("p99 {times:.2} times, "))
                + &most
                + &left(figures.leaving_s)
                + if result.holds { "holds" } else { "falls short" };
        let _ = writeln!(
            text,
            "{:<14}{:<6}{:<46}{:>6.2}{:>8.3}{:>9.1}{:>9.1}{:>9.1}{:>9.1}{:>9.2}{:>9.1}  {notes}",
            result.drive,
            if result.write_cache { "on" } else { "off" },
            format!("{}, seed {}", result.gate, result.seed),
            result.least,
            result.reached,
            figures.write_mb_s,
            figures.sequential_mb_s,
            figures.write_p99_ms,
            figures.write_max_ms,
            figures.appended_per_byte,
            figures.table_bytes_per_block,
        );
    }
    text
}
