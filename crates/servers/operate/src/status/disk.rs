//! The status of the disk below a server: its link, its write cache, and what durable writes cost.

use std::fmt::Write as _;
use std::path::Path;

use manylogs_block::{BlockDevice, on_off};
use manylogs_disk::LinkKind;
use manylogs_storage::{Attached, Noted, noted};
use serde::{Deserialize, Serialize};

use crate::emulation::Emulated;

/// The disk below. A field is `None` if it cannot be found out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskStatus {
    /// The kernel's name of the whole disk, or that of the emulated drive.
    pub disk: String,
    /// Whether it is a model.
    pub emulated: bool,
    /// The recognised model in words; `None` if it was not recognised.
    #[serde(default)]
    pub drive: Option<String>,
    /// sata, sata-behind-sas, sas (also other SCSI links), usb, raid, virtual, nvme, made (of other
    /// devices) or unknown.
    pub link: String,
    /// The link in words.
    pub link_text: String,
    /// Whether the drive's own write cache is on.
    pub write_cache: Option<bool>,
    /// Whether the kernel sends writes with forced unit access as such, and not as a write and a
    /// flush.
    pub fua: Option<bool>,
    /// Commands that the disk gets at a time.
    pub queue_depth: Option<u32>,
    /// Whether the drive must finish its whole queue before each record.
    pub drains_queue: bool,
    /// The setting of the write cache that will be restored when the server ends, or by the next
    /// one if the server was killed; `None` if no server has changed it.
    pub put_back: Option<bool>,
    /// Warnings and advice, in words.
    pub notes: Vec<String>,
}

/// What a durable write costs on a link that drains its queue, and what helps.
const DRAINS: &str = "each record is a write and a FLUSH CACHE: all that is in the drive's queue \
                      ends first, and nothing else goes meanwhile; what helps is the drive's write \
                      cache off (--write-cache off), or FUA, if the drive has it (libata.fua=1 for \
                      the kernel)";

impl DiskStatus {
    /// The status of the disk at `path`; `None` for a file.
    #[must_use]
    pub fn at(path: &Path) -> Option<Self> {
        Attached::at(path).map(|attached| Self::of(attached, noted(path)))
    }

    /// The status of the emulated drive, or else of the disk at `path`; with the model that was
    /// `recognised`.
    pub(crate) fn of_served(
        path: &Path,
        drive: Option<&Emulated>,
        recognised: &Option<String>,
    ) -> Option<Self> {
        let disk = drive.map_or_else(|| Self::at(path), |drive| Some(Self::of_emulated(drive)));
        disk.map(|disk| Self { drive: recognised.clone(), ..disk })
    }

    fn of(attached: Attached, noted: Option<Noted>) -> Self {
        let hidden = attached.transport.hides_cache();
        let seen = |value| if hidden.is_some() { None } else { value };
        let drains_queue = attached.drains_queue();
        let mut notes = Vec::new();
        if let Some(why) = &hidden {
            notes.push(format!("what a durable write costs is not known: {why}"));
        }
        if drains_queue {
            notes.push(DRAINS.to_owned());
        }
        if attached.drops_flushes() {
            notes.push(format!(
                "the kernel sends no flush although the drive's write cache is on: data that was \
                 synced is lost with the power (echo write back > /sys/block/{}/queue/write_cache)",
                attached.disk
            ));
        }
        let changed = noted.filter(|noted| noted.former != noted.set);
        if let Some(noted) = &changed {
            notes.push(of_note(noted));
        }
        Self {
            link: attached.transport.name().to_owned(),
            link_text: attached.transport.to_string(),
            write_cache: seen(attached.write_cache.or(attached.flushed)),
            fua: seen(attached.fua),
            queue_depth: attached.queue_depth,
            drains_queue,
            put_back: changed.map(|noted| noted.former),
            disk: attached.disk,
            emulated: false,
            drive: None,
            notes,
        }
    }

    fn of_emulated(drive: &Emulated) -> Self {
        let model = drive.drive.model();
        let (link, write_cache) = (model.link(), model.capabilities().volatile_cache);
        let drains_queue = link.kind == LinkKind::Sata && write_cache && !link.fua;
        Self {
            disk: drive.name.clone(),
            emulated: true,
            drive: None,
            link: link.kind.name().to_owned(),
            link_text: link.kind.name().to_uppercase(),
            write_cache: Some(write_cache),
            fua: Some(link.fua),
            queue_depth: u32::try_from(model.depth()).ok(),
            drains_queue,
            put_back: None,
            notes: if drains_queue { vec![DRAINS.to_owned()] } else { Vec::new() },
        }
    }

    /// Name, link, cache, FUA and queue in one line.
    #[must_use]
    pub fn summary(&self) -> String {
        let mut out = format!("{}: {}", self.disk, self.link_text);
        match self.write_cache {
            Some(on) => drop(write!(out, ", write cache {}", on_off(on))),
            None => out += ", write cache unknown",
        }
        if let Some(fua) = self.fua.filter(|_| self.write_cache == Some(true)) {
            let _ = write!(out, ", fua {}", u8::from(fua));
        }
        if let Some(depth) = self.queue_depth {
            let _ = write!(out, ", queue depth {depth}");
        }
        out
    }
}

fn of_note(noted: &Noted) -> String {
    let (set, former, pid) = (on_off(noted.set), on_off(noted.former), noted.pid);
    if noted.is_held {
        format!("process {pid} has turned the write cache {set}, and turns it {former} at its end")
    } else {
        format!(
            "process {pid}, which was killed, has turned the write cache {set}: the next manylogs \
             serve, fs mount or stop of this disk turns it {former}"
        )
    }
}

#[cfg(test)]
mod tests {
    use manylogs_storage::Transport;

    use super::*;

    fn attached(transport: Transport) -> Attached {
        Attached {
            disk: "sdb".to_owned(),
            transport,
            flushed: Some(true),
            write_cache: Some(true),
            fua: Some(false),
            queue_depth: Some(32),
            rotational: Some(true),
            bytes: 1 << 40,
        }
    }

    #[test]
    fn a_drained_queue_is_told_with_what_helps() {
        let sata = attached(Transport::Sata);
        let status = DiskStatus::of(sata.clone(), None);
        assert_eq!(status.summary(), "sdb: SATA, write cache on, fua 0, queue depth 32");
        assert!(status.drains_queue && status.notes[0].contains("libata.fua=1"));
        let off = Attached { write_cache: Some(false), flushed: Some(false), ..sata };
        let status = DiskStatus::of(off, None);
        assert_eq!(status.summary(), "sdb: SATA, write cache off, queue depth 32");
        assert!(!status.drains_queue && status.notes.is_empty());
    }

    #[test]
    fn what_cannot_be_seen_is_told_and_not_guessed() {
        let status = DiskStatus::of(attached(Transport::Raid("hpsa".to_owned())), None);
        assert_eq!((status.write_cache, status.fua, status.drains_queue), (None, None, false));
        assert!(status.summary().contains("a RAID controller (hpsa), write cache unknown"));
        assert!(status.notes[0].contains("not known"), "{:?}", status.notes);
    }

    #[test]
    fn what_a_killed_server_left_is_told_until_it_is_put_back() {
        let off = Attached { write_cache: Some(false), ..attached(Transport::Sata) };
        let noted = |is_held| Noted { former: true, set: false, pid: 7, is_held };
        let held = DiskStatus::of(off.clone(), Some(noted(true)));
        assert_eq!(held.put_back, Some(true));
        let text = held.notes.join("; ");
        assert!(
            text.contains("process 7 has turned the write cache off, and turns it on"),
            "{text}"
        );
        let text = DiskStatus::of(off.clone(), Some(noted(false))).notes.join("; ");
        assert!(text.contains("which was killed") && text.contains("turns it on"), "{text}");
        let same = Noted { former: false, ..noted(true) };
        assert_eq!(DiskStatus::of(off, Some(same)).put_back, None);
    }

    #[test]
    fn dropped_flushes_are_a_danger_that_is_told() {
        let dropped = Attached { flushed: Some(false), ..attached(Transport::Sata) };
        let notes = DiskStatus::of(dropped, None).notes.join("; ");
        assert!(notes.contains("lost with the power"), "{notes}");
    }
}
