//! The drives of a chain and their content.

use std::rc::Rc;

use manylogs_block::{BlockDevice, Extent, Handle, Nanos, Payload, Request, Rng, Sectors};
use manylogs_filters::{Spindle, Zoned};
use manylogs_gecko::{CacheOptions, Chain, ChainError, ChainMember, ChainSettings};
use manylogs_logstore::ondisk::equal_logs::{log_count, logs};
use manylogs_logstore::store::Device;
use manylogs_sim::{CrashDisk, CrashDiskConfig, DiskImage, Survival};

use super::model::LOST;
use super::plan::{FLASH_STRIPE, GeckoPlan};

/// More than a chain of a history has drives.
const DRIVES_MOST: usize = 64;

/// Content of drives that are not in use.
#[derive(Clone)]
pub(super) struct Images(pub(super) Vec<DiskImage>);

impl Images {
    pub(super) fn blank(plan: &GeckoPlan) -> Self {
        Self(vec![DiskImage::default(); plan.drives.len() + usize::from(plan.flash.is_some())])
    }

    /// A hash: equal contents have equal hashes, and other contents different ones, except by rare
    /// chance.
    pub(super) fn fingerprint(&self) -> u64 {
        let mix = |sum: u64, image: &DiskImage| Rng::new(sum ^ image.fingerprint()).next_u64();
        self.0.iter().fold(0, mix)
    }
}

/// The drives of a world. Clones are the same drives.
#[derive(Clone)]
pub(super) struct Drives(Vec<CrashDisk>);

impl Drives {
    pub(super) fn new(runtime: &Handle, plan: &GeckoPlan, images: &Images) -> Self {
        // The SSD of the tail cache is the last.
        let drives = plan.drives.iter().chain(&plan.flash).zip(&images.0);
        let drive = |(config, image): (&CrashDiskConfig, &DiskImage)| {
            CrashDisk::new(runtime.clone(), *config, image.clone())
        };
        Self(drives.map(drive).collect())
    }

    pub(super) fn events(&self) -> u64 {
        self.0.iter().map(CrashDisk::events).sum()
    }

    /// Kills the user of all drives or cuts their power, now. Each drive loses other data.
    pub(super) fn crash(&self, rng: &mut Rng) -> Images {
        let killed = rng.one_in(2);
        let mut crash = |drive: &CrashDisk| {
            if killed {
                return drive.after_kill(rng);
            }
            let survival = match rng.below(4) {
                0 => Survival::Nothing,
                1 => Survival::Everything,
                _ => Survival::Random,
            };
            drive.after_power_cut(survival, rng)
        };
        Images(self.0.iter().map(&mut crash).collect())
    }

    /// The drive with this number.
    pub(super) fn drive(&self, number: usize) -> &CrashDisk {
        &self.0[number]
    }

    /// Makes the chain for the first incarnation, or opens it.
    pub(super) async fn open(
        &self,
        runtime: Handle,
        plan: &GeckoPlan,
        incarnation: usize,
        fresh: bool,
    ) -> Result<Chain, ChainError> {
        if fresh {
            let drives = self.0[..plan.members].iter().map(|drive| of_plan(drive, plan)).collect();
            let settings = plan.settings[incarnation];
            let chain = Chain::create(runtime, drives, plan.options(), settings).await?;
            self.attach_flash(&chain, plan).await;
            return Ok(chain);
        }
        // A chain finds its members by their labels, in whatever order the drives come.
        self.open_without(runtime, plan, incarnation, (incarnation, None)).await.0
    }

    /// Opens the chain with all drives that have a label, except for one. The drives are given from
    /// the one with number `first` on. Also returns their numbers.
    pub(super) async fn open_without(
        &self,
        runtime: Handle,
        plan: &GeckoPlan,
        incarnation: usize,
        (first, without): (usize, Option<usize>),
    ) -> (Result<Chain, ChainError>, Vec<usize>) {
        let mut given = Vec::new();
        for (number, drive) in self.0[..plan.drives.len()].iter().enumerate() {
            let may_be_spare = plan.mirrored || plan.linked;
            let is_spare = may_be_spare && !has_label(drive).await;
            if !is_spare && without != Some(number) {
                given.push(number);
            }
        }
        let count = given.len().max(1);
        given.rotate_left(first % count);
        // A crash of the chain's user leaves drives as they are, and a computer that starts may
        // leave them standing: some do.
        let stands = |number: usize| Rng::new((first * DRIVES_MOST + number) as u64).one_in(2);
        let drive = |number: &usize| -> Rc<dyn BlockDevice> {
            match plan.sleep.is_some() && stands(*number) {
                true => Rc::new(spindle(&self.0[*number], plan).standing()),
                false => of_plan(&self.0[*number], plan),
            }
        };
        let drives = given.iter().map(drive).collect();
        let degraded = without.is_some();
        let settings = ChainSettings { degraded, ..plan.settings[incarnation] };
        let opened = Chain::open(runtime, drives, settings).await;
        if let Ok(chain) = &opened {
            self.attach_flash(chain, plan).await;
        }
        (opened, given)
    }

    /// Gives the chain its SSD, if it has one. One that holds nothing, or cannot be read, is made
    /// anew; whatever becomes of it, clients must not notice.
    async fn attach_flash(&self, chain: &Chain, plan: &GeckoPlan) {
        let Some(flash) = self.0.get(plan.drives.len()) else { return };
        let flash: Rc<dyn BlockDevice> = Rc::new(flash.clone());
        if chain.attach_cache(Rc::clone(&flash)).await.is_ok() {
            return;
        }
        let options = CacheOptions { stripe: FLASH_STRIPE };
        if chain.format_cache(&flash, options).await.is_ok() {
            let _ = chain.attach_cache(flash).await;
        }
    }
}

impl Drives {
    /// The number of the drive that is being copied to, if there is one.
    pub(super) async fn joining(&self) -> Option<usize> {
        let mut labels = Vec::new();
        for (number, drive) in self.0.iter().enumerate() {
            labels.extend(label_of(drive).await.map(|label| (number, label)));
        }
        let (_, newest) = labels.iter().max_by_key(|(_, label)| label.age())?;
        let joins = |(_, label): &&(usize, ChainMember)| newest.roster.joins(label.id);
        labels.iter().find(joins).map(|(number, _)| *number)
    }
}

/// A drive that can stand.
fn spindle(drive: &CrashDisk, plan: &GeckoPlan) -> Spindle<CrashDisk> {
    let spin_up = plan.sleep.map_or(Nanos(0), |sleep| sleep.spin_up);
    Spindle::new(drive.runtime(), drive.clone(), spin_up)
}

/// The drive as the plan wants it.
pub(super) fn of_plan(drive: &CrashDisk, plan: &GeckoPlan) -> Rc<dyn BlockDevice> {
    if plan.sleep.is_some() {
        return Rc::new(spindle(drive, plan));
    }
    if !plan.zoned {
        return Rc::new(drive.clone());
    }
    let segments = log_count(drive.capabilities().capacity, plan.segment);
    let segments = logs(Device(0), segments, plan.segment).map(|(_, segment)| segment);
    Rc::new(Zoned::new(drive.clone(), segments))
}

async fn has_label(drive: &CrashDisk) -> bool {
    label_of(drive).await.is_some()
}

async fn label_of(drive: &CrashDisk) -> Option<ChainMember> {
    for extent in ChainMember::places(drive.capabilities().capacity) {
        let read = drive.submit(Request::Read { extent }).await;
        let bytes = read.ok().and_then(|content| content.to_bytes()).unwrap_or_default();
        if let Ok(Some(label)) = ChainMember::decode(&bytes) {
            return Some(label);
        }
    }
    None
}

/// Reads the whole content of the chain. If drives were lost, sectors that cannot be read have the
/// tag [`LOST`].
pub(super) async fn read_all(chain: &Chain, plan: &GeckoPlan) -> Result<Payload, String> {
    let mut rest = vec![Extent::new(0, chain.capabilities().capacity.0)];
    let mut content = Payload::default();
    while let Some(extent) = rest.pop() {
        match chain.submit(Request::Read { extent }).await {
            Ok(found) => content.append(found),
            Err(error) if !plan.bereft => return Err(format!("read: {error}")),
            Err(_) if extent.len.0 == 1 => content.append(Payload::tags(LOST, extent.len)),
            Err(_) => {
                let middle = extent.start + Sectors(extent.len.0 / 2);
                rest.push(Extent::between(middle, extent.end()));
                rest.push(Extent::between(extent.start, middle));
            }
        }
    }
    Ok(content)
}
