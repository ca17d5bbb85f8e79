//! The disk of a world: a single disk, or the members of an array.

use std::cell::Cell;
use std::rc::Rc;

use manylogs::{Phase, PhaseProbe};
use manylogs_array::Stripe;
use manylogs_block::{
    BlockDevice, Extent, Geometry, Handle, Lba, Payload, Rng, Sector, Sectors, Split,
};
use manylogs_sim::{CrashDisk, CrashDiskConfig, DiskImage, Survival};

use crate::device::{PhasedDisk, last_phase};

/// Content of a disk, or of each member of an array.
#[derive(Clone)]
pub(crate) struct DiskImages {
    pub(crate) each: Vec<DiskImage>,
    pub(crate) array: Option<Geometry>,
}

impl DiskImages {
    /// Blank disks.
    pub(crate) fn blank(array: Option<Geometry>) -> Self {
        let members = array.map_or(1, |array| usize::from(array.columns));
        Self { each: vec![DiskImage::default(); members], array }
    }

    /// A single disk.
    pub(crate) fn one(disk: DiskImage) -> Self {
        Self { each: vec![disk], array: None }
    }

    /// The only disk, or the first member of an array.
    pub(crate) fn first(&self) -> &DiskImage {
        &self.each[0]
    }

    /// As [`DiskImages::first`], for damage.
    pub(crate) fn first_mut(&mut self) -> &mut DiskImage {
        &mut self.each[0]
    }

    pub(crate) fn fingerprint(&self) -> u64 {
        let (first, others) = (self.each[0].fingerprint(), &self.each[1..]);
        let of_member =
            |(member, image): (u64, &DiskImage)| Rng::new(image.fingerprint() ^ member).next_u64();
        (1..).zip(others).map(of_member).fold(first, u64::wrapping_add)
    }

    pub(crate) fn settle(&mut self) {
        self.each.iter_mut().for_each(DiskImage::settle);
    }

    /// The content that a user of the disk or the array reads.
    pub(crate) fn read(&self, extent: Extent) -> Payload {
        let Some(array) = self.array else { return self.first().read(extent) };
        let split = Split::of(array.chunks(extent));
        let read = |column: u16, extent| self.each[usize::from(column)].read(extent);
        split.assemble(split.shares.iter().map(|share| read(share.column, share.extent)).collect())
    }

    /// This content, of length `capacity`, on an array of another shape, as a reshape leaves it.
    /// All of it is durable.
    pub(crate) fn reshaped(mut self, to: Geometry, capacity: Sectors) -> Self {
        self.settle();
        let mut new = Self::blank(Some(to));
        let content = self.read(Extent { start: Lba(0), len: capacity });
        for (at, sector) in (0..).zip(content.sectors()) {
            let sector = sector.unwrap_or_default();
            if sector != Sector::default() {
                let (column, place) = to.locate(Lba(at));
                new.each[usize::from(column)].corrupt(place, sector);
            }
        }
        new
    }
}

/// See the module. Clones are the same disks.
#[derive(Clone)]
pub(crate) struct Disks {
    each: Vec<CrashDisk>,
    array: Option<Geometry>,
    /// The runtime of the array, which is the kernel's: it outlives the volume's process.
    runtime: Handle,
    /// The phase of the last request to an array.
    last: Rc<Cell<u8>>,
}

impl Disks {
    /// Disks that hold `images` and together have the capacity in `config`; see [`CrashDisk::new`].
    pub(crate) fn new(runtime: Handle, config: CrashDiskConfig, images: DiskImages) -> Self {
        let DiskImages { each, array } = images;
        let capacity = Sectors(config.capacity.0 / each.len() as u64);
        let config = CrashDiskConfig { capacity, ..config };
        let disk = |image| CrashDisk::new(runtime.clone(), config, image);
        let each = each.into_iter().map(disk).collect();
        Self { each, array, runtime, last: Rc::default() }
    }

    /// The only disk, or the first member of an array.
    pub(crate) fn first(&self) -> &CrashDisk {
        &self.each[0]
    }

    /// The disk for the volume. It labels requests with the phase of `probe`.
    pub(crate) fn device(&self, probe: &PhaseProbe) -> Rc<dyn BlockDevice> {
        let member = |disk: &CrashDisk| -> Rc<dyn BlockDevice> {
            let (disk, probe, last) = (disk.clone(), probe.clone(), Rc::clone(&self.last));
            Rc::new(PhasedDisk { disk, probe, last })
        };
        let Some(array) = self.array else { return member(self.first()) };
        let members = self.each.iter().map(member).collect();
        Rc::new(Stripe::new(self.runtime.clone(), members, array.chunk, array.copies))
    }

    pub(crate) fn remember_writes(&self) {
        self.each.iter().for_each(CrashDisk::remember_writes);
    }

    /// Number of events so far. Crashes between the same two events cannot be told apart.
    pub(crate) fn events(&self) -> u64 {
        self.each.iter().map(CrashDisk::events).sum()
    }

    /// The phase of the volume's last request.
    pub(crate) fn phase(&self) -> Phase {
        match self.array {
            Some(_) => Phase::ALL[usize::from(self.last.get())],
            None => last_phase(self.first()),
        }
    }

    /// Content of the disks after their user was killed.
    pub(crate) fn after_kill(&self, rng: &mut Rng) -> DiskImages {
        let each = self.each.iter().map(|disk| disk.after_kill(rng)).collect();
        DiskImages { each, array: self.array }
    }

    /// Content of the disks after a power cut. Each member's cache is lost in its own way.
    pub(crate) fn after_power_cut(
        &self,
        first: Survival,
        rng: &mut Rng,
        draw: impl Fn(&mut Rng) -> Survival,
    ) -> DiskImages {
        let mut each = vec![self.first().after_power_cut(first, rng)];
        for disk in &self.each[1..] {
            let survival = draw(rng);
            each.push(disk.after_power_cut(survival, rng));
        }
        DiskImages { each, array: self.array }
    }
}
