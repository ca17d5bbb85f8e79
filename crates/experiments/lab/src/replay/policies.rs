//! The list of policies on a command line.

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use manylogs::{LogPlacement, OwnPolicy, Policy, PolicyError, Settings, Volume, VolumeConfig};
use manylogs_block::{Sectors, bytes_text};
use manylogs_disk::CachePlacement;
use thiserror::Error;

/// Name of the policy whose logs lie where `format` puts them ...
pub(super) const OURS: &str = "mlb";
/// ... and of the one whose logs lie where `format --shingled` puts them.
pub(crate) const SHINGLED: &str = "mlb-shingled";
/// Policies within a shingled drive, without a volume.
const WITHIN_DRIVES: [(&str, CachePlacement); 2] =
    [("slsmr", CachePlacement::Single), ("mlsmr", CachePlacement::NearHead)];
/// Option that concerns the drive and not the volume.
const CACHE: &str = "cache=";

/// A policy and the text that chose it.
#[derive(Clone, Debug)]
pub struct NamedPolicy {
    /// The policy as the user wrote it, which is the key in every output.
    pub name: String,
    /// The parsed policy, with the paper's layout. See [`NamedPolicy::on`] for other drives.
    pub policy: Policy,
    /// Whether the drive's write cache is on; `None` for the setting that the durability demands.
    pub cache: Option<bool>,
    /// Which writes of a shingled drive go where.
    pub placement: CachePlacement,
    /// A user's own policy that decides instead, if any.
    pub own: Option<Own>,
}

/// A user's own policy, over the volume of one of ours.
#[derive(Clone, Debug)]
pub struct Own {
    /// The policy that provides the volume, in the form of [`NamedPolicy::parse`].
    base: String,
    makers: Arc<dyn OwnPolicies>,
}

/// Makes a user's policy for each replay.
pub trait OwnPolicies: fmt::Debug + Send + Sync {
    /// The policy of a replay that begins now, from this seed.
    fn begin(&self, seed: u64) -> Rc<dyn OwnPolicy>;
}

impl NamedPolicy {
    /// The names of policies, including those within shingled drives. `mlb-N` takes any number of
    /// KiB.
    #[must_use]
    pub fn names() -> Vec<&'static str> {
        let within = WITHIN_DRIVES.map(|(name, _)| name);
        Policy::NAMES.into_iter().chain(within).collect()
    }

    /// Parses one policy as [`Policy`] does, or one within a shingled drive, and the option
    /// `cache=on` or `cache=off` of the drive below.
    ///
    /// # Errors
    /// If a policy or an option is unknown.
    pub fn parse(name: &str) -> Result<Self, PolicyError> {
        let (rest, cache) = without_cache(name)?;
        let within = WITHIN_DRIVES.iter().find(|(within, _)| *within == rest);
        let policy = if within.is_some() { Policy::NoLogging } else { rest.parse()? };
        let placement = within.map_or(CachePlacement::Streams, |(_, placement)| *placement);
        Ok(Self { name: name.to_owned(), policy, cache, placement, own: None })
    }

    /// A user's policy of this name, made by `makers`, over the volume of the policy `base`.
    ///
    /// # Errors
    /// Those of [`parse`](Self::parse) for `base`; or if that is the plain drive.
    pub fn of_own(
        name: &str,
        base: &str,
        makers: Arc<dyn OwnPolicies>,
    ) -> Result<Self, PolicyError> {
        let of_base = Self::parse(base)?;
        let absurd = |policy: &str, reason: &str| {
            Err(PolicyError::Absurd { policy: policy.to_owned(), reason: reason.to_owned() })
        };
        if of_base.policy.config().is_none() {
            return absurd(base, "it has no logs, so nobody can decide what goes there");
        }
        if Self::parse(name).is_ok() {
            return absurd(name, "another policy has this name");
        }
        let own = Some(Own { base: base.to_owned(), makers });
        Ok(Self { name: name.to_owned(), own, ..of_base })
    }

    /// Lets the user's own policy, if any, decide in a replay on `volume` that begins from this
    /// seed.
    pub(super) fn begin(&self, volume: Option<&Volume>, seed: u64) {
        if let (Some(volume), Some(own)) = (volume, &self.own) {
            volume.decided_by(own.makers.begin(seed));
        }
    }

    /// The text from which the policy was parsed.
    fn spelled(&self) -> &str {
        self.own.as_ref().map_or(&self.name, |own| &own.base)
    }

    /// The plain drive without a volume.
    #[must_use]
    pub fn nologging() -> Self {
        Self {
            name: "nologging".to_owned(),
            policy: Policy::NoLogging,
            cache: None,
            placement: CachePlacement::Streams,
            own: None,
        }
    }

    /// The policy with all its parameters.
    #[must_use]
    pub fn parameters(&self) -> String {
        let within = WITHIN_DRIVES.iter().find(|(_, placement)| *placement == self.placement);
        within.map_or_else(|| self.policy.to_string(), |(name, _)| (*name).to_owned())
    }

    /// Whether this is the plain drive.
    #[must_use]
    pub const fn is_plain(&self) -> bool {
        matches!(self.policy, Policy::NoLogging)
            && matches!(self.placement, CachePlacement::Streams)
    }

    /// Whether `format` can make this volume: it must have many logs, with the headers of records
    /// in the logs, and no policy of a user's own.
    #[must_use]
    pub fn can_be_made(&self) -> bool {
        let in_logs = |config: &VolumeConfig| config.table == manylogs::TablePlace::Logs;
        self.own.is_none() && matches!(&self.policy, Policy::Mlb(config) if in_logs(config))
    }

    /// The policy for a device of this size. `mlb` gets the logs that `format` makes on such a
    /// device, and `mlb-shingled` those of `format --shingled`, unless its options say otherwise.
    ///
    /// # Errors
    /// If the policy's options contradict these logs.
    pub fn on(&self, device: Sectors) -> Result<Policy, PolicyError> {
        let (rest, _) = without_cache(self.spelled())?;
        let (name, options) = rest.split_once(':').unwrap_or((&rest, ""));
        let config = match name {
            OURS => VolumeConfig::for_device(device),
            SHINGLED => VolumeConfig::for_shingled(device, VolumeConfig::BAND),
            _ => return Ok(self.policy.clone()),
        };
        let LogPlacement::EveryGroup(group) = config.placement else {
            return Ok(self.policy.clone());
        };
        let text = |sectors: Sectors| bytes_text(sectors.bytes());
        let (log, group) = (text(config.log), text(group));
        let own = Settings::of(&config).unlike(&Settings::for_log(config.log));
        let own: String = own.iter().map(|(key, value)| format!("{key}={value},")).collect();
        format!("mlb:log={log},group={group},{own}{options}").parse()
    }

    /// The largest write that the policy logs; `None` if it logs nothing.
    #[must_use]
    pub const fn threshold(&self) -> Option<Sectors> {
        match &self.policy {
            Policy::NoLogging => None,
            Policy::SingleLog(config) | Policy::Mlb(config) => Some(config.threshold),
        }
    }
}

/// The reason why a list of policies was refused.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PolicyListError {
    /// An item is not a policy.
    #[error(transparent)]
    Policy(#[from] manylogs::PolicyError),
    /// A policy is listed twice. Both would have the same key in the output.
    #[error("policy {0:?} is given twice")]
    Twice(String),
}

/// Parses lists of policies.
///
/// Commas separate both policies and the options of one. An option is `key=value`, a policy is a
/// name with perhaps `:` and its first option behind it, so `mlb:log=5M,swap=0.7,nologging` is two
/// policies.
///
/// # Errors
/// If a policy or an option is unknown, or a policy is listed twice.
pub fn parse_policies<S: AsRef<str>>(lists: &[S]) -> Result<Vec<NamedPolicy>, PolicyListError> {
    let mut found: Vec<NamedPolicy> = Vec::new();
    for name in lists.iter().flat_map(|list| split(list.as_ref())) {
        if found.iter().any(|other| other.name == name) {
            return Err(PolicyListError::Twice(name));
        }
        found.push(NamedPolicy::parse(&name)?);
    }
    Ok(found)
}

/// Splits the drive's option from the policy's text.
fn without_cache(name: &str) -> Result<(String, Option<bool>), PolicyError> {
    let Some((policy, options)) = name.split_once(':') else { return Ok((name.to_owned(), None)) };
    let mut cache = None;
    let mut rest = Vec::new();
    for option in options.split(',') {
        match option.strip_prefix(CACHE) {
            Some("on") => cache = Some(true),
            Some("off") => cache = Some(false),
            Some(value) => {
                return Err(PolicyError::BadValue {
                    key: "cache".to_owned(),
                    value: value.to_owned(),
                    expected: "on or off: the drive's write cache",
                });
            }
            None => rest.push(option),
        }
    }
    match rest.is_empty() {
        true => Ok((policy.to_owned(), cache)),
        false => Ok((format!("{policy}:{}", rest.join(",")), cache)),
    }
}

fn split(list: &str) -> Vec<String> {
    let mut policies: Vec<String> = Vec::new();
    for piece in list.split(',') {
        let piece = piece.trim();
        match policies.last_mut() {
            Some(policy) if is_option(piece) => {
                policy.push(',');
                policy.push_str(piece);
            }
            _ => policies.push(piece.to_owned()),
        }
    }
    policies
}

fn is_option(piece: &str) -> bool {
    piece.split_once('=').is_some_and(|(key, _)| !key.contains(':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_stay_with_their_policy() {
        let list = "nologging,mlb:log=5M,swap=0.7,single-log:log=5G,place=50%,mlb-32";
        assert_eq!(
            split(list),
            ["nologging", "mlb:log=5M,swap=0.7", "single-log:log=5G,place=50%", "mlb-32"]
        );
    }

    #[test]
    fn the_cache_is_the_drives() {
        let plain = NamedPolicy::parse("nologging:cache=off").unwrap();
        assert!(plain.is_plain() && plain.cache == Some(false));
        let ours = NamedPolicy::parse("mlb:threshold=64K,cache=on").unwrap();
        assert_eq!((ours.threshold(), ours.cache), (Some(Sectors(128)), Some(true)));
        let error = NamedPolicy::parse("mlb:cache=maybe").unwrap_err().to_string();
        assert!(error.contains("on or off"), "{error}");
    }

    #[test]
    fn ours_has_the_logs_that_format_makes() {
        let device = Sectors(20_000_000_000_000 / 512);
        let logs = |name: &str| {
            let policy = NamedPolicy::parse(name).unwrap().on(device).unwrap();
            let config = *policy.config().unwrap();
            (config.log, config.placement, config.threshold, config.band)
        };
        let format = VolumeConfig::for_device(device);
        assert_eq!(logs("mlb"), (format.log, format.placement, format.threshold, format.band));
        assert_eq!(logs("mlb:threshold=64K").2, Sectors(128));
        let shingled = VolumeConfig::for_shingled(device, VolumeConfig::BAND);
        let all = (shingled.log, shingled.placement, shingled.threshold, shingled.band);
        assert_eq!((logs("mlb-shingled"), all.0), (all, Sectors(256 * 2048)));
        let paper = LogPlacement::EveryGroup(Sectors(100 * 2048));
        for name in ["mlb:group=100M", "mlb-256", "mlb-paper"] {
            assert_eq!(logs(name).1, paper, "{name}");
        }
    }

    #[test]
    fn a_policy_given_twice_is_an_error() {
        let error = parse_policies(&["nologging,mlb-32", "nologging"]).unwrap_err();
        assert!(matches!(error, PolicyListError::Twice(name) if name == "nologging"));
    }
}
