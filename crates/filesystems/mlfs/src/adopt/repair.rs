//! Checks and repairs logs that are damaged or cannot be read.

use std::rc::Rc;

use manylogs::{
    DrainOptions, Finding, OpenOptions, PatientReads, RepairReport, Severity, Volume, check_with,
};
use manylogs_block::{BlockDevice, Extent, IoResult, Request};
use manylogs_ext4::{BlockNo, Copies};
use manylogs_near::give_up_lost;
use manylogs_plant::{Bug, is};

use super::{AdoptError, Logs, Site, Volumes, locate};

/// Result of a repair of the logs.
#[derive(Clone, Debug)]
pub struct Repaired {
    /// The faults that were found.
    pub findings: Vec<Finding>,
    /// Records that were found in the logs, and versions that went home.
    pub logs: RepairReport,
    /// Extents whose newest content is lost: they hold older content.
    pub lost: Vec<Extent>,
    /// Whether acknowledged changes are lost: then the superblock says that there are errors.
    pub has_errors: bool,
}

/// Checks the logs of an adopted file system that nobody uses. Nothing is written.
///
/// # Errors
/// If the logs are not found, or structures cannot be read that an opening needs.
pub async fn check_logs(site: &Site, logs: &Logs) -> Result<Vec<Finding>, AdoptError> {
    let patient: Rc<dyn BlockDevice> =
        PatientReads::new(Rc::clone(&site.device), site.runtime.clone());
    let (_, findings) = check_with(&patient, &Volumes::open_options(logs)?).await?;
    Ok(findings)
}

/// Repairs the logs of an adopted file system: brings readable versions home, gives up the others,
/// and overwrites bad sectors, so that the drive replaces them. The file system stays adopted, with
/// drained logs. If acknowledged changes are lost, older versions reappear. Before anything is
/// given up, the superblock notes that there are errors: mounts are refused until e2fsck has run.
///
/// A crash leaves the damage as it was, or a file system with errors: a second call goes on.
///
/// # Errors
/// Those of [`super::open`], of writing, and of [`Volume::repair`].
pub async fn repair(site: &Site) -> Result<Repaired, AdoptError> {
    let located = locate(site, &Volumes).await?;
    located.check(site, &Volumes).await?;
    let options = Volumes::open_options(&located.logs)?;
    let reads: Rc<dyn BlockDevice> =
        PatientReads::giving_up(Rc::clone(&site.device), site.runtime.clone());
    let (_, findings) = check_with(&reads, &options).await?;
    located.complete().await?;
    let is_lossy = findings.iter().any(|finding| finding.severity == Severity::Loss);
    if is_lossy && !is(Bug::MlfsRepairNotNoted) {
        let options = OpenOptions { accept_damage: true, ..options.clone() };
        let (volume, _) = Volume::open(site.runtime.clone(), Rc::clone(&reads), &options).await?;
        let noted = note_errors(&volume, site).await;
        volume.close().await?;
        noted?;
    }
    let device = Rc::clone(&site.device);
    let logs = Volume::repair_with(site.runtime.clone(), device, &options).await?;
    let lost = give_up(site, &options).await?;
    let has_errors = is_lossy || !lost.is_empty();
    Ok(Repaired { findings, logs, lost, has_errors })
}

/// Gives up the extents that the table marks as lost, and drains the logs. Returns them.
async fn give_up(site: &Site, options: &OpenOptions) -> Result<Vec<Extent>, AdoptError> {
    let options = OpenOptions { to_drain: true, ..options.clone() };
    let device = Rc::clone(&site.device);
    let (volume, _) = Volume::open(site.runtime.clone(), device, &options).await?;
    let lost: Vec<Extent> =
        volume.table().iter().filter(|mapped| mapped.lost).map(|mapped| mapped.extent).collect();
    if !lost.is_empty() {
        let given_up = match note_errors(&volume, site).await {
            Ok(()) => give_up_lost(&volume, &lost).await.map_err(AdoptError::from),
            noted => noted,
        };
        if given_up.is_err() {
            volume.close().await?;
        }
        given_up?;
    }
    volume.drain(&DrainOptions::default()).await?;
    Ok(lost)
}

/// Notes durably in the first superblock that errors were found.
async fn note_errors(volume: &Volume, site: &Site) -> Result<(), AdoptError> {
    let through: Rc<dyn BlockDevice> = Rc::new(volume.clone());
    if let Err(error) = through.submit(Request::Read { extent: first_block() }).await {
        // The first block's unreadable version is given up like the others.
        restore_first_block(&through, site).await.map_err(|_| error)?;
    }
    let mut copies = Copies::read(through).await?;
    if copies.check_errors().is_ok() {
        copies.mark_errors().await?;
    }
    Ok(())
}

/// Writes the first block's home content through the volume, as its newest version.
async fn restore_first_block(through: &Rc<dyn BlockDevice>, site: &Site) -> IoResult<()> {
    let extent = first_block();
    let payload = site.device.submit(Request::Read { extent }).await?;
    through.submit(Request::write_fua(extent, payload)).await.map(drop)
}

fn first_block() -> Extent {
    BlockNo(0).sectors()
}
