//! Content that is dealt out to the members of an array, and put together again.

use std::rc::Rc;

use manylogs::Layout;
use manylogs_block::{Extent, Geometry, Lba, Rng, Sector, Sectors};
use manylogs_sim::{CrashDisk, DiskImage, Survival};

use crate::volume::disks::{DiskImages, Disks};
use crate::volume::parity::rotation;

impl DiskImages {
    /// The content of a single disk on a new array, which has as many whole stripes as `len` takes.
    /// All of it is durable.
    pub(crate) fn dealt(disk: DiskImage, array: Geometry, len: Sectors) -> Self {
        Self::one(disk).reshaped(array, Sectors(len.0.next_multiple_of(array.stripe().0)))
    }

    /// This content, of length `capacity`, on an array of another shape, as a reshape leaves it.
    /// All of it is durable, copies are the same, and parity fits.
    pub(crate) fn reshaped(mut self, to: Geometry, capacity: Sectors) -> Self {
        self.settle();
        let (homes, life) = (self.homes.clone(), self.life);
        let member = Sectors(capacity.0 / u64::from(to.columns));
        let mut new = Self { homes, life, member, ..Self::blank(Some(to)) };
        let content = self.read(Extent { start: Lba(0), len: capacity });
        for (at, sector) in (0..).zip(content.sectors()) {
            let sector = sector.unwrap_or_default();
            if sector != Sector::default() {
                let (column, place) = to.locate(Lba(at));
                for member in new.members_of_data(to, column, place) {
                    new.each[member].corrupt(place, sector.clone());
                }
            }
        }
        new.settle();
        if to.parity > 0 {
            new.fit_all_parity(to);
        }
        new
    }

    /// The first `len` sectors that a user of the disk or the array reads, as a single disk.
    pub(crate) fn flat(&self, len: Sectors) -> DiskImage {
        if self.array.is_none() {
            return self.first().clone();
        }
        let mut flat = DiskImage::default();
        let content = self.read(Extent { start: Lba(0), len });
        for (at, sector) in (0..).zip(content.sectors()) {
            let sector = sector.unwrap_or_default();
            if sector != Sector::default() {
                flat.corrupt(Lba(at), sector);
            }
        }
        flat.settle();
        flat
    }

    /// Length of a disk with room for `len`: an array is whole stripes.
    pub(crate) fn room_for(&self, len: Sectors) -> Sectors {
        self.array.map_or(len, |array| Sectors(len.0.next_multiple_of(array.stripe().0)))
    }

    /// The members that hold a place of a column's data.
    fn members_of_data(&self, array: Geometry, column: u16, place: Lba) -> Vec<usize> {
        match rotation(Some(array)) {
            None => self.copies(column),
            Some(rotation) => {
                vec![rotation.of_data(place.0 / array.chunk.0, column).into()]
            }
        }
    }
}

impl Disks {
    /// The content of the disk, or of the array's first `len` sectors, once all caches are written.
    pub(crate) fn settled(&self, len: Sectors) -> DiskImage {
        let whole = |disk: &CrashDisk| disk.after_power_cut(Survival::Everything, &mut Rng::new(1));
        self.images(self.each.iter().map(whole).collect()).flat(len)
    }
}

/// The homes of a volume. If its owner gave the places of logs and structures, they are what lies
/// between these, in whole stripes of an array with parity: a stripe that structures share with
/// homes counts as one of homes.
pub(crate) fn homes_on(layout: &Layout, array: Option<Geometry>) -> Rc<[Extent]> {
    let Some(anchors) = layout.anchors() else {
        return layout.homes().iter().map(|(_, extent)| *extent).collect();
    };
    let mut holes = [layout.regions(), &anchors.both()].concat();
    holes.sort_unstable();
    let end = Lba(layout.capacity().0);
    let ends = holes.iter().map(|hole| (hole.start, hole.end())).chain([(end, end)]);
    let (mut homes, mut next) = (Vec::new(), Lba(0));
    for (start, behind) in ends {
        if next < start {
            homes.push(whole_stripes(Extent::between(next, start), array));
        }
        next = behind;
    }
    homes.into()
}

/// The stripes of an array with parity that an extent touches; on others the extent itself.
fn whole_stripes(extent: Extent, array: Option<Geometry>) -> Extent {
    let Some(array) = array.filter(|array| array.parity > 0) else { return extent };
    let stripe = array.stripe().0;
    let end = extent.end().0.next_multiple_of(stripe);
    Extent::between(Lba(extent.start.0 / stripe * stripe), Lba(end))
}
