//! The drives that hold a file system: one, or the members of an array.

use std::rc::Rc;

use manylogs_array::Rotation;
use manylogs_block::{BlockDevice, Geometry, Handle, Lba, Media, MemoryDevice};
use manylogs_disk::device::ModelledDrive;
use manylogs_disk::{ContentTooLarge, EmulatedDrive};

use crate::replay::DriveSettings;

/// Modelled drives with their content, and the device made of them.
pub(super) struct Drives {
    contents: Vec<Rc<MemoryDevice>>,
    models: Vec<ModelledDrive>,
    top: Rc<dyn BlockDevice>,
}

impl Drives {
    /// The drives of `settings` with the content `media`, on the node of `runtime`.
    ///
    /// # Errors
    /// If the drives cannot be modelled.
    pub(super) fn holding(
        runtime: &Handle,
        settings: &DriveSettings,
        media: Vec<Media>,
        seed: u64,
    ) -> Result<Self, ContentTooLarge> {
        let capacity = settings.profile.capacity();
        let contents: Vec<Rc<MemoryDevice>> =
            media.into_iter().map(|held| Rc::new(MemoryDevice::holding(capacity, held))).collect();
        let drive = |(member, content): (u16, &Rc<MemoryDevice>)| {
            let options = settings.member_options(seed, member);
            let below = Rc::clone(content) as Rc<dyn BlockDevice>;
            EmulatedDrive::new(runtime.clone(), &settings.profile, &options, below)
        };
        let drives = (0..).zip(&contents).map(drive).collect::<Result<Vec<_>, _>>()?;
        let models = drives.iter().map(|drive| drive.model().clone()).collect();
        Ok(Self { top: settings.assembled(runtime, drives), models, contents })
    }

    /// The device for a file system.
    pub(super) fn top(&self) -> Rc<dyn BlockDevice> {
        Rc::clone(&self.top)
    }

    /// How often the drives were asked to read.
    pub(super) fn reads(&self) -> u64 {
        self.models.iter().map(|model| model.counters().reads).sum()
    }

    /// For how many accesses their arms moved, or their heads changed.
    pub(super) fn seeks(&self) -> u64 {
        self.models.iter().map(|model| model.counters().seeks).sum()
    }

    /// How many bands the drives have to clean.
    pub(super) fn dirty_bands(&self) -> u64 {
        let shingled = self.models.iter().filter_map(ModelledDrive::shingled);
        shingled.map(|figures| figures.dirty_bands).sum()
    }

    /// What each drive holds.
    pub(super) fn media(&self) -> Vec<Media> {
        self.contents.iter().map(|content| content.media()).collect()
    }
}

/// Splits the content `whole` of a device into the contents of its drives. The content of parity is
/// left out: the model does not keep it.
pub(super) fn dealt(settings: &DriveSettings, whole: Media) -> Vec<Media> {
    let Some(array) = settings.array else { return vec![whole] };
    let shape = array.shape;
    let (columns, copies, parity) = (shape.columns(), shape.copies(), shape.parity());
    let first = Default::default();
    let geometry = Geometry { chunk: shape.chunk, columns, copies, parity, first };
    let rotation = Rotation { members: columns + parity, parity };
    let mut each = vec![Media::default(); usize::from(columns + parity)];
    for (lba, sector) in whole.iter() {
        let (column, at) = geometry.locate(Lba(lba));
        let holder = match parity {
            0 => column,
            _ => rotation.of_data(at.0 / shape.chunk.0, column),
        };
        each[usize::from(holder)].set(at.0, sector.clone());
    }
    each.into_iter().flat_map(|held| vec![held; usize::from(copies)]).collect()
}
