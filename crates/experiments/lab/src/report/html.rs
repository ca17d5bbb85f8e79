//! Puts the figures, the words and the plotting code into one page.

use std::fmt::Write as _;

use crate::results::{Decision, Replay};
use crate::table;

const PAGE: &str = include_str!("../../assets/report.html");
const STYLE: &str = include_str!("../../assets/report.css");
const SCRIPT: &str = include_str!("../../assets/report.js");
const UPLOT_STYLE: &str = include_str!("../../assets/uPlot.min.css");
const UPLOT_SCRIPT: &str = include_str!("../../assets/uPlot.iife.min.js");
const UPLOT_LICENSE: &str = include_str!("../../assets/uPlot.LICENSE");

/// The report as one self-contained page.
///
/// # Errors
/// If a figure has no JSON form, which none should.
pub fn html(replay: &Replay) -> serde_json::Result<String> {
    // "</" in a string would end the script element that carries the data.
    let data = replay.to_json()?.replace("</", "<\\/");
    let found = &replay.verdict;
    let parts = [
        ("{{title}}", escaped(&title(replay))),
        ("{{verdict}}", marked(&found.text)),
        ("{{points}}", items(&found.points)),
        ("{{warnings}}", items(&replay.warnings)),
        ("{{next}}", marked(&next_step(&replay.command, found.decision))),
        ("{{table}}", table_html(replay)),
        ("{{provenance}}", provenance(replay)),
        ("{{style}}", format!("{UPLOT_STYLE}\n{STYLE}")),
        ("{{uplot_license}}", escaped(UPLOT_LICENSE)),
        ("{{uplot}}", UPLOT_SCRIPT.to_owned()),
        ("{{script}}", SCRIPT.to_owned()),
        ("{{data}}", data),
    ];
    Ok(filled(PAGE, &parts))
}

/// The next step for the reader.
fn next_step(command: &str, decision: Decision) -> String {
    if command.starts_with("manylogs advise") {
        return match decision {
            Decision::Use => {
                "Next: try it on a part of your load, and look at `manylogs top`.".to_owned()
            }
            Decision::NoDifference | Decision::DoNotUse => {
                "Next: leave the drive as it is. A verdict is about the load that was recorded: \
                 record other busy times (`manylogs record`) before you decide for good."
                    .to_owned()
            }
        };
    }
    match decision {
        Decision::Use => "Next: `manylogs advise`, with the same trace and drive, finds the \
                          settings and says how sure that is."
            .to_owned(),
        Decision::NoDifference | Decision::DoNotUse => {
            "Next: `manylogs advise` looks for settings with which it would help, if there are \
             any; a longer or busier part of the trace may say more."
                .to_owned()
        }
    }
}

fn items(texts: &[String]) -> String {
    texts.iter().map(|text| format!("<li>{}</li>", marked(text))).collect()
}

/// Replaces each placeholder of `page` in one pass. Inserted text is not searched again.
fn filled(page: &str, parts: &[(&str, String)]) -> String {
    let mut out =
        String::with_capacity(page.len() + parts.iter().map(|p| p.1.len()).sum::<usize>());
    let mut rest = page;
    while let Some(at) = rest.find("{{") {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let part = parts.iter().find(|(name, _)| rest.starts_with(name));
        let Some((name, value)) = part else { unreachable!("unknown placeholder in the page") };
        out.push_str(value);
        rest = &rest[name.len()..];
    }
    out.push_str(rest);
    out
}

fn title(replay: &Replay) -> String {
    let files: Vec<&str> =
        replay.trace.files.iter().map(|f| f.rsplit('/').next().unwrap_or(f)).collect();
    format!("{} on {}", files.join(" + "), replay.drive)
}

fn table_html(replay: &Replay) -> String {
    let mut out = String::from("<thead><tr>");
    table::TITLES.iter().for_each(|title| _ = write!(out, "<th>{title}</th>"));
    out.push_str("</tr></thead><tbody>");
    for row in table::rows(replay) {
        out.push_str("<tr>");
        row.iter().for_each(|text| _ = write!(out, "<td>{}</td>", cell(text)));
        out.push_str("</tr>");
    }
    out + "</tbody>"
}

/// Turns text between backquotes into code elements.
fn marked(text: &str) -> String {
    let parts = text.split('`').enumerate().map(|(index, part)| match index % 2 {
        0 => escaped(part),
        _ => format!("<code>{}</code>", escaped(part)),
    });
    parts.collect()
}

/// A cell with its interval below. The text may break after commas.
fn cell(text: &str) -> String {
    match text.split_once(" (") {
        Some((estimate, interval)) => {
            format!(
                "{}<small>{}</small>",
                escaped(estimate),
                escaped(interval.trim_end_matches(')'))
            )
        }
        None => escaped(text).replace(',', ",<wbr>"),
    }
}

fn provenance(replay: &Replay) -> String {
    let trace = &replay.trace;
    let mut facts = vec![
        ("Trace", trace.files.join(", ")),
        ("Requests", format!("{} (passes over the trace: {})", trace.requests, trace.passes)),
        ("Recorded span", format!("{} s", trace.span_seconds)),
        ("Changes to the trace", or_none(&trace.transforms)),
        (
            "Offered",
            format!(
                "{} requests/s, {} MB/s",
                trace.offered_requests_per_second, trace.offered_mb_per_second
            ),
        ),
        ("Rate", rate(replay)),
        ("Loop", loop_mode(replay)),
        ("Drive", format!("{} ({})", replay.drive, replay.drive_details.model)),
        ("Durability", replay.durability.text.clone()),
        ("Small writes", format!("up to {}", table::bytes(replay.small_write_max_bytes))),
        ("Seeds", format!("{}, and {} more", replay.seed, replay.seeds.saturating_sub(1))),
    ];
    for policy in &replay.policies.0 {
        facts.push(("Policy", format!("{}: {}", policy.name, policy.parameters)));
    }
    facts.push(("To repeat", replay.command.clone()));
    let row =
        |(name, value): &(&str, String)| format!("<dt>{name}</dt><dd>{}</dd>", escaped(value));
    facts.iter().map(row).collect()
}

fn rate(replay: &Replay) -> String {
    let rate = &replay.rate;
    let target = rate.target_utilisation.map_or_else(String::new, |target| {
        format!(", so that the drive is {:.0} % busy without logging", target * 100.0)
    });
    format!("arrivals {} times as fast as recorded ({}{target})", rate.factor, rate.chosen)
}

/// The loop mode in words.
#[must_use]
pub(crate) fn loop_mode(replay: &Replay) -> String {
    match replay.loop_mode.mode {
        "closed" => format!("closed: {} requests always in flight", replay.loop_mode.depth),
        _ => "open: requests arrive at the times of the trace".to_owned(),
    }
}

fn or_none(items: &[String]) -> String {
    if items.is_empty() { "none".to_owned() } else { items.join("; ") }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_in_is_not_searched_for_placeholders() {
        let parts = [("{{a}}", "{{b}}".to_owned()), ("{{b}}", "x".to_owned())];
        assert_eq!(filled("<{{a}}{{b}}>", &parts), "<{{b}}x>");
    }

    #[test]
    fn who_is_told_not_to_use_it_is_not_told_to_try_it() {
        let next = |decision| next_step("manylogs advise t.csv", decision);
        assert!(next(Decision::Use).contains("try it on a part"));
        for decision in [Decision::NoDifference, Decision::DoNotUse] {
            assert!(next(decision).contains("leave the drive as it is"));
            assert!(!next(decision).contains("try it"));
        }
    }

    #[test]
    fn words_between_backquotes_are_code() {
        assert_eq!(marked("as `mlb:a<b`."), "as <code>mlb:a&lt;b</code>.");
        assert_eq!(cell("1.90 (1.80 to 2.00)"), "1.90<small>1.80 to 2.00</small>");
    }

    #[test]
    fn text_cannot_become_markup() {
        assert_eq!(escaped("<b a=\"1\">&"), "&lt;b a=&quot;1&quot;&gt;&amp;");
    }
}
