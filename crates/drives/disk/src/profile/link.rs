//! The table of the link between host and drive, and the defaults without one.

use manylogs_block::on_off;
use serde::{Deserialize, Serialize};

use super::check::Check;
use super::{Profile, ProfileError, Sources};
use crate::link::{Link, LinkKind, LinkSettings};

/// Faster drives without a table are taken for SAS drives: apart from a few of 10,000 rpm, no
/// faster drive came with SATA.
const SATA_RPM_MAX: f64 = 7_300.0;
/// No SATA drive turned faster.
const SATA_RPM_LIMIT: f64 = 10_500.0;

/// The link between host and drive.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct LinkTable {
    /// `"sata"`, or `"sas"` for the SCSI commands of SAS and Fibre Channel.
    pub kind: LinkKind,
    /// Whether the host knows that the drive takes forced unit access while its write cache is on,
    /// as in `queue/fua`. This is not the drive's ability: Linux hides that on SATA unless
    /// `libata.fua=1` is set.
    pub fua: bool,
    /// Sources of the two values above.
    pub source: Sources,
}

impl Profile {
    /// The link to the host: from the profile, or the usual one of a drive of this speed.
    #[must_use]
    pub fn link(&self) -> Link {
        let told = self.link.as_ref().map(|table| Link { kind: table.kind, fua: table.fua });
        told.unwrap_or_else(|| Link::usual(self.assumed_link()))
    }

    /// Notes for a user of this drive with `settings`, with a write cache or without: an assumed
    /// link, a setting without effect, or a link that no such drive has.
    #[must_use]
    pub fn link_notes(&self, settings: LinkSettings, write_cache: bool) -> Vec<String> {
        let assumed = self.link.is_none() && settings.kind.is_none();
        let useless = settings.fua == Some(true) && !write_cache;
        let odd = settings.kind == Some(LinkKind::Sata) && self.rpm() > SATA_RPM_LIMIT;
        let link = settings.over(self.link());
        let (name, rpm) = (&self.name, self.rpm());
        let notes = [
            assumed.then(|| {
                format!(
                    "the profile of {name} has no [link]: {} is assumed for {rpm:.0} rpm, with \
                     FUA {} (add a [link] with kind, fua and their sources, or choose the link \
                     with --drive-link)",
                    link.kind,
                    on_off(link.fua)
                )
            }),
            useless.then(|| {
                format!(
                    "FUA of {name} makes no difference while its write cache is off: every write \
                     is durable when it is answered"
                )
            }),
            odd.then(|| {
                format!(
                    "no SATA drive turns {rpm:.0} times a minute: {name} is modelled as if one did"
                )
            }),
        ];
        notes.into_iter().flatten().collect()
    }

    fn assumed_link(&self) -> LinkKind {
        if self.rpm() <= SATA_RPM_MAX { LinkKind::Sata } else { LinkKind::Sas }
    }
}

/// Checks that both values name their source, and that drives with such a link exist.
pub(super) fn check(check: &Check<'_>, p: &Profile) -> Result<(), ProfileError> {
    let Some(link) = &p.link else { return Ok(()) };
    for leaf in ["kind", "fua"] {
        let named = link.source.get(leaf).is_some_and(|text| !text.trim().is_empty());
        if !named {
            return Err(check.no_source(&format!("link.{leaf}"), leaf));
        }
    }
    let possible = link.kind == LinkKind::Sas || p.rpm() <= SATA_RPM_LIMIT;
    let expected = format!("expected \"sas\": no SATA drive turns {:.0} times a minute", p.rpm());
    check.that(possible, "link.kind", &expected)
}

#[cfg(test)]
mod tests {
    use super::super::{drives, find};
    use super::*;

    /// The drive's profile with `table` in place of its link table.
    fn with_link(name: &str, table: &str) -> Result<Profile, ProfileError> {
        let path = format!("{}/../../../profiles/{name}.toml", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(path).unwrap();
        let (before, from) = text.split_once("\n[link]\n").unwrap();
        let rest = from.split_once("\n[").map_or(String::new(), |(_, rest)| format!("[{rest}"));
        Profile::parse(name, &format!("{before}\n{table}\n{rest}"))
    }

    #[test]
    fn each_drive_that_comes_with_the_program_has_a_link() {
        for name in drives() {
            let profile = find(name).unwrap().unwrap();
            assert!(profile.link.is_some(), "{name}");
            assert_eq!(profile.link_notes(LinkSettings::default(), false), [""; 0], "{name}");
            let scsi = name == "cheetah-15k5";
            assert_eq!(profile.link(), Link::usual(profile.link().kind), "{name}");
            assert_eq!(profile.link().kind == LinkKind::Sas, scsi, "{name}");
        }
    }

    #[test]
    fn without_a_link_one_is_assumed_by_speed_and_said() {
        let slow = with_link("exos-x20", "").unwrap();
        assert_eq!(slow.link(), Link { kind: LinkKind::Sata, fua: false });
        let said = slow.link_notes(LinkSettings::default(), true).join("; ");
        assert!(said.contains("exos-x20 has no [link]: sata is assumed for 7200 rpm"), "{said}");
        let fast = with_link("cheetah-15k5", "").unwrap();
        assert_eq!(fast.link(), Link { kind: LinkKind::Sas, fua: true });
        let said = fast.link_notes(LinkSettings::default(), true).join("; ");
        assert!(said.contains("sas is assumed for 15017 rpm, with FUA on"), "{said}");
        let chosen = LinkSettings { kind: Some(LinkKind::Sata), fua: None };
        assert_eq!(slow.link_notes(chosen, true), [""; 0]);
    }

    #[test]
    fn what_makes_no_difference_or_is_on_no_drive_is_said() {
        let disk = find("exos-x20").unwrap().unwrap();
        let told = LinkSettings { kind: None, fua: Some(true) };
        assert_eq!(disk.link_notes(told, true), [""; 0]);
        let said = disk.link_notes(told, false).join("; ");
        assert!(said.contains("makes no difference while its write cache is off"), "{said}");
        let fast = find("cheetah-15k5").unwrap().unwrap();
        let sata = LinkSettings { kind: Some(LinkKind::Sata), fua: None };
        let said = fast.link_notes(sata, true).join("; ");
        assert!(said.contains("no SATA drive turns 15017 times a minute"), "{said}");
    }

    #[test]
    fn a_link_that_cannot_be_is_refused_by_name() {
        let sources = "source.kind = \"a\"\nsource.fua = \"b\"";
        let refused = |drive: &str, table: &str| {
            with_link(drive, &format!("[link]\n{table}")).unwrap_err().to_string()
        };
        let both = format!("kind = \"sata\"\nfua = false\n{sources}");
        let error = refused("cheetah-15k5", &both);
        assert!(error.contains("`link.kind`: expected \"sas\": no SATA drive turns"), "{error}");
        let error = refused("exos-x20", "kind = \"sata\"\nfua = false\nsource.kind = \"a\"");
        assert!(error.contains("`link.fua` names no source"), "{error}");
        let error = refused("exos-x20", &format!("kind = \"nvme\"\nfua = false\n{sources}"));
        assert!(error.contains("unknown variant `nvme`, expected `sata` or `sas`"), "{error}");
        let error = refused("exos-x20", &format!("kind = \"sas\"\n{sources}"));
        assert!(error.contains("missing field `fua`"), "{error}");
    }
}
