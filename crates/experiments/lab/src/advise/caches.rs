//! The drive's write cache on or off, for the plain drive and for the volume.

use manylogs_block::on_off;
use serde::Serialize;

use super::{kept, search};
use crate::replay::Outcome;
use crate::results::{PolicyResult, Replay};
use crate::table::duration;

/// A difference of durable means below this share decides nothing.
const NOTICEABLE: f64 = 1.01;

/// The plain drive or the volume, with one setting of the write cache.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CacheChoice {
    /// Whether it is the volume, not the plain drive.
    pub volume: bool,
    /// Whether the drive's write cache was on.
    pub write_cache: bool,
    /// The policy; for a volume the best one that was replayed with this setting.
    pub policy: String,
    /// Mean time until data was durable; `None` if no write had to be durable.
    pub durable_mean_us: Option<f64>,
    /// Mean latency of reads; `None` without reads.
    pub reads_mean_us: Option<f64>,
    /// Throughput of streams in units of 10^6 bytes per second; `None` without streams.
    pub stream_mb_s: Option<f64>,
    /// Whether the load was more than the drive could do with this setting.
    pub overloaded: bool,
}

/// The choices compared, and the conclusion.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Caches {
    /// The plain drive and the volume, each with the cache on and off: four, unless one does not
    /// fit the drive.
    pub choices: Vec<CacheChoice>,
    /// The write cache's setting for the volume: that of the advised policy.
    pub set_for_volume: Option<bool>,
    /// The setting without a volume: the one with which the plain drive makes data durable sooner.
    /// `None` if there is no difference.
    pub set_for_plain: Option<bool>,
    /// The link of the drive in the model: sata or sas.
    pub link: &'static str,
    /// Whether the model's host is told of forced unit access while the cache is on.
    pub fua: bool,
}

impl Caches {
    /// Compares the replays; `advised` is the policy of the advice.
    pub(super) fn of(
        replay: &Replay,
        outcomes: &[Outcome],
        advised: Option<&PolicyResult>,
    ) -> Self {
        let results = || {
            outcomes
                .iter()
                .filter_map(|outcome| Some((outcome, replay.policies.named(&outcome.policy.name)?)))
        };
        let best = |volume: bool, write_cache: bool| {
            let fits = results().filter(|(outcome, result)| {
                let kind =
                    if volume { outcome.policy.can_be_made() } else { outcome.policy.is_plain() };
                kind && result.drive_write_cache == write_cache
            });
            let found = fits.max_by(|a, b| worth(a.1, volume).total_cmp(&worth(b.1, volume)))?;
            Some(CacheChoice::of(found.1, volume))
        };
        let pairs = [(false, true), (false, false), (true, true), (true, false)];
        let choices: Vec<_> =
            pairs.into_iter().filter_map(|(volume, cache)| best(volume, cache)).collect();
        let plain = |on| choices.iter().find(|c| !c.volume && c.write_cache == on);
        let set_for_plain = match (plain(true), plain(false)) {
            (Some(on), Some(off)) => sooner(on, off),
            _ => None,
        };
        let set_for_volume = advised.map(|result| result.drive_write_cache);
        let (link, fua) = (replay.drive_details.link, replay.drive_details.fua);
        Self { choices, set_for_volume, set_for_plain, link, fua }
    }

    /// The conclusion in sentences.
    pub(super) fn sentences(&self) -> Vec<String> {
        let found =
            |volume, on| self.choices.iter().find(|c| c.volume == volume && c.write_cache == on);
        let mut out = Vec::new();
        for (volume, who) in [(true, "with the volume"), (false, "the plain drive")] {
            let (Some(on), Some(off)) = (found(volume, true), found(volume, false)) else {
                continue;
            };
            let (Some(on_us), Some(off_us)) = (on.durable_mean_us, off.durable_mean_us) else {
                continue;
            };
            let set = if volume { self.set_for_volume } else { self.set_for_plain };
            let what = match set {
                Some(set) => format!("set the drive's write cache {}", on_off(set)),
                None => "the drive's write cache makes no difference".to_owned(),
            };
            out.push(format!(
                "{who}: {what}; data is durable after {} with the cache on and {} with it off{}{}",
                duration(on_us),
                duration(off_us),
                streams(on, off),
                overload(on, off),
            ));
        }
        if self.link == "sata" && !self.fua && !out.is_empty() {
            let took = |volume| Some(duration(found(volume, true)?.durable_mean_us?));
            let costs = match (took(true), took(false)) {
                (Some(with), Some(plain)) => {
                    format!(", which is in the {with} with the volume and the {plain} without")
                }
                _ => String::new(),
            };
            out.push(format!(
                "on SATA without FUA each durable write with the cache on makes the drive's queue \
                 end first (a write and a FLUSH CACHE){costs}"
            ));
        }
        out
    }
}

impl CacheChoice {
    fn of(result: &PolicyResult, volume: bool) -> Self {
        let (durable, reads) = (&result.latency_us.durable, &result.latency_us.reads);
        Self {
            volume,
            write_cache: result.drive_write_cache,
            policy: result.name.clone(),
            durable_mean_us: (durable.requests > 0).then_some(durable.mean),
            reads_mean_us: (reads.requests > 0).then_some(reads.mean),
            stream_mb_s: result.stream_mb_s,
            overloaded: result.overload.overloaded,
        }
    }
}

/// Sort key of choices: among volumes that of the advice, among plain drives the speed-up alone.
fn worth(result: &PolicyResult, volume: bool) -> f64 {
    let gain = result.gain.unwrap_or_default();
    let durable = gain.durable_mean.map_or(1.0, |interval| interval.estimate);
    if volume { search::rank(&result.name, durable, kept(&gain)) } else { durable }
}

/// The setting with which data is durable sooner; `None` if there is no difference.
fn sooner(on: &CacheChoice, off: &CacheChoice) -> Option<bool> {
    match (on.overloaded, off.overloaded) {
        (true, false) => return Some(false),
        (false, true) => return Some(true),
        _ => {}
    }
    let (on, off) = (on.durable_mean_us?, off.durable_mean_us?);
    if on > off * NOTICEABLE {
        Some(false)
    } else if off > on * NOTICEABLE {
        Some(true)
    } else {
        None
    }
}

fn streams(on: &CacheChoice, off: &CacheChoice) -> String {
    match (on.stream_mb_s, off.stream_mb_s) {
        (Some(on), Some(off)) => format!(", streams move {on:.0} and {off:.0} MB/s"),
        _ => String::new(),
    }
}

fn overload(on: &CacheChoice, off: &CacheChoice) -> &'static str {
    match (on.overloaded, off.overloaded) {
        (false, false) => "",
        (true, false) => " (with it on the drive does not keep up)",
        (false, true) => " (with it off the drive does not keep up)",
        (true, true) => " (the drive keeps up with neither)",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(volume: bool, write_cache: bool, ms: u32) -> CacheChoice {
        CacheChoice {
            volume,
            write_cache,
            policy: "p".to_owned(),
            durable_mean_us: Some(1e3 * f64::from(ms)),
            reads_mean_us: None,
            stream_mb_s: Some(if write_cache { 150.0 } else { 120.0 }),
            overloaded: false,
        }
    }

    #[test]
    fn the_sooner_durable_setting_is_advised_and_told_with_figures() {
        let (on, off) = (choice(false, true, 15), choice(false, false, 11));
        assert_eq!(sooner(&on, &off), Some(false));
        assert_eq!(sooner(&off, &on), Some(true));
        assert_eq!(sooner(&on, &on), None);
        let drowned = CacheChoice { overloaded: true, ..off.clone() };
        assert_eq!(sooner(&on, &drowned), Some(true));
        let caches = Caches {
            choices: vec![on, off, choice(true, true, 13), choice(true, false, 8)],
            set_for_volume: Some(false),
            set_for_plain: Some(false),
            link: "sata",
            fua: false,
        };
        let said = caches.sentences();
        assert_eq!(said.len(), 3, "{said:?}");
        assert!(
            said[0].starts_with("with the volume: set the drive's write cache off"),
            "{said:?}"
        );
        assert!(said[0].contains("13.0 ms with the cache on and 8.00 ms"), "{said:?}");
        assert!(said[2].contains("FLUSH CACHE"), "{said:?}");
    }
}
