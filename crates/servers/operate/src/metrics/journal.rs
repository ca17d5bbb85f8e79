//! The metrics of a journal that keeps its metadata (mode `lazy`).

use super::{Page, Row};
use crate::status::{JournalStatus, ScrubStatus};

const GAUGES: [Row<JournalStatus>; 4] = [
    ("journal_size_bytes", "Length of the journal.", |j| j.size_bytes),
    ("journal_used_bytes", "What its transactions take.", |j| j.used_bytes),
    ("journal_live_bytes", "Of these, what is newer than at home.", |j| j.live_bytes),
    ("journal_oldest_seconds", "For how long the oldest home is old.", |j| j.oldest_s),
];

const OF_SCRUB: [Row<ScrubStatus>; 6] = [
    ("journal_scrub_age_seconds", "Time since the last scrub ended.", |s| s.ended_ago_s),
    ("journal_scrub_blocks", "Live blocks that it read.", |s| s.blocks),
    ("journal_scrub_renewed_blocks", "Damaged blocks that it wrote anew.", |s| s.renewed),
    ("journal_scrub_home_parts", "Parts that it brought home.", |s| s.brought_home),
    ("journal_scrub_torn_parts", "Parts where a replay would end.", |s| s.torn_left),
    ("journal_scrub_lost_blocks", "Damaged blocks that nobody has.", |s| s.lost),
];

/// Adds the metrics of the journal, and of its last scrub since the mount, if there was one.
pub(super) fn of_journal(page: &mut Page, journal: &JournalStatus) {
    for (name, help, value) in GAUGES {
        page.single(name, "gauge", help, value(journal));
    }
    let help = "Live blocks that scrubs have read since the mount.";
    page.single("journal_scrubbed_blocks_total", "counter", help, journal.scrubbed_blocks);
    if let Some(idle) = &journal.idle_arranged {
        let help = "Blocks that arranging in idle time wrote anew since the mount.";
        page.single("journal_idle_arranged_blocks_total", "counter", help, idle.blocks);
        let help = "Blocks that lay apart from what a walk meets before, at the last look.";
        page.single("journal_apart_blocks", "gauge", help, idle.apart);
    }
    let Some(scrub) = &journal.scrub else { return };
    for (name, help, value) in OF_SCRUB {
        page.single(name, "gauge", help, value(scrub));
    }
    let help = "Whether it stopped before its end.";
    page.single("journal_scrub_cut_short", "gauge", help, u8::from(scrub.is_cut_short));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scrub_is_told_once_there_was_one() {
        let page = |scrub| {
            let journal = JournalStatus { live_bytes: 8192, scrub, ..JournalStatus::default() };
            let mut page = Page { text: String::new(), labels: "device=\"d\"".to_owned() };
            of_journal(&mut page, &journal);
            page.text
        };
        let without = page(None);
        assert!(without.contains("manylogs_journal_live_bytes{device=\"d\"} 8192\n"), "{without}");
        assert!(!without.contains("journal_scrub_"), "{without}");
        let with = page(Some(ScrubStatus { ended_ago_s: 7, lost: 3, ..ScrubStatus::default() }));
        for sample in ["age_seconds{device=\"d\"} 7", "lost_blocks{device=\"d\"} 3"] {
            assert!(with.contains(&format!("manylogs_journal_scrub_{sample}\n")), "{with}");
        }
    }
}
