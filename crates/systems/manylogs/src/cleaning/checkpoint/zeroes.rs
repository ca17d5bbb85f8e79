//! Long zeroed extents that cannot stay in the table: they are zeroed at home.

use std::rc::Rc;

use manylogs_block::{Extent, ExtentKind, Extents, IoError, Lba, Payload, Sectors, all_done};
use manylogs_plant::{self as plant, Bug};

use super::Progress;
use super::copy::Run;
use crate::requests::home_lock::Writer;
use crate::state::Inner;
use manylogs_engine::{Phase, Reader};
use manylogs_logstore::Mapped;
use manylogs_logstore::store::Place;

/// Longest zeroing request. A client's large write to the same place waits for one such request at
/// most.
const ZEROES_REQUEST: Sectors = Sectors(1 << 17);

impl Inner {
    /// Zeroes the homes of the extents that `progress` lists, piece by piece, so that the memory
    /// needed does not depend on their length.
    pub(super) async fn write_zeroes_home(
        self: &Rc<Self>,
        progress: &mut Progress,
    ) -> Result<(), crate::error::VolumeError> {
        for extent in std::mem::take(&mut progress.zeroed) {
            let mut rest = extent;
            while !rest.is_empty() {
                self.may_go_on(progress.pass)?;
                let piece = self.first_piece(rest);
                rest = Extent::between(piece.end(), rest.end());
                self.write_zeroes_piece(piece, progress).await?;
            }
        }
        Ok(())
    }

    /// The first piece of `rest`; it ends at the edge of a physical sector.
    fn first_piece(&self, rest: Extent) -> Extent {
        if rest.len <= ZEROES_REQUEST {
            return rest;
        }
        let physical = self.below.physical_sector.0;
        let end = (rest.start.0 + ZEROES_REQUEST.0) / physical * physical;
        Extent::between(rest.start, Lba(end))
    }

    async fn write_zeroes_piece(
        self: &Rc<Self>,
        piece: Extent,
        progress: &mut Progress,
    ) -> Result<(), IoError> {
        let rows = self.rows_of_homes();
        let locked = self.locked_at_home(piece, rows);
        let _guard = self.locks.lock(Writer::Checkpoint, locked).await;
        // Clients may have written there meanwhile.
        let zeroed: Vec<(Extent, Mapped<Place>)> = {
            let state = self.engine.state.borrow();
            let still = state.store.map().lookup(piece).filter_map(|(part, mapped)| {
                let still = mapped.filter(|mapped| {
                    mapped.sequence < progress.floor && matches!(mapped.value, Place::Zeroes { .. })
                });
                still.map(|mapped| (part, mapped))
            });
            still.collect()
        };
        for (part, mapped) in zeroed {
            let torn = plant::is(Bug::ZeroesTornSectors);
            let whole = if torn { part } else { self.whole_physical(part) };
            let edges = [
                Extent::between(part.start, whole.start),
                Extent::between(whole.end(), part.end()),
            ];
            let edges = edges.into_iter().filter(|edge| !edge.is_empty());
            match rows {
                None => {
                    for edge in edges {
                        self.zero_edge(edge).await?;
                    }
                }
                Some(array) => {
                    let runs = edges.map(|edge| zeroes(edge, &mapped)).collect();
                    self.write_rows(array, runs, progress).await?;
                }
            }
            let zeroed = self.zero_whole(whole).await?;
            progress.report.home_write_sectors += zeroed + (part.len - whole.len);
            progress.report.home_writes += 1;
        }
        Ok(())
    }

    /// Makes the homes read as zeroes. Sends no request where the device says that they do already.
    /// Returns the number of sectors that were zeroed.
    async fn zero_whole(&self, whole: Extent) -> Result<Sectors, IoError> {
        let mut parts = Vec::new();
        for home in self.layout.home(whole) {
            self.add_what_is_not_zero(home, &mut parts).await;
        }
        let requests = parts.iter().map(|part| {
            let request = self.below.zeroing(*part);
            self.device.submit(Phase::Checkpoint, request)
        });
        // All requests are submitted before the first is awaited.
        let requests: Vec<_> = requests.collect();
        all_done(requests).await?;
        Ok(Sectors(parts.iter().map(|part| part.len.0).sum()))
    }

    /// Adds the parts of `home`, in whole physical sectors, that are not known to read as zeroes.
    pub(super) async fn add_what_is_not_zero(&self, home: Extent, parts: &mut Vec<Extent>) {
        let mut rest = home;
        while !rest.is_empty() {
            // If the device cannot tell, all of it is zeroed.
            let known = self.device.extents(rest).await;
            let known = known.unwrap_or_else(|_| Extents::of(rest, ExtentKind::Data));
            for (extent, kind) in known.iter() {
                // This bug must tear sectors wherever zeroes go.
                let known_zero = kind.reads_as_zeroes() && !plant::is(Bug::ZeroesTornSectors);
                if known_zero || plant::is(Bug::ZeroesTakenForGranted) {
                    continue;
                }
                let whole = extent.widened_to(self.below.physical_sector).intersection(home);
                match parts.last_mut() {
                    Some(last) if last.end() >= whole.start => {
                        *last = Extent::between(last.start, whole.end().max(last.end()));
                    }
                    _ => parts.push(whole),
                }
            }
            rest = Extent::between(known.whole().end().max(rest.start), rest.end());
            if known.whole().is_empty() {
                parts.push(rest);
                return;
            }
        }
    }

    /// Zeroes a part of a physical sector, and writes the rest of the sector with its old content:
    /// a torn write of the part alone could damage the rest.
    async fn zero_edge(&self, edge: Extent) -> Result<(), IoError> {
        let whole = self.widen_to_physical(edge);
        let mut content = Payload::default();
        for home in self.layout.home(whole) {
            content.append(self.device.read(Reader::System, home).await?);
        }
        let before = Sectors(edge.start.0 - whole.start.0);
        let after = Sectors(edge.end().0 - whole.start.0);
        let mut mended = content.slice(Sectors(0), before);
        mended.append(Payload::zeroes(edge.len));
        mended.append(content.slice(after, whole.len - after));
        all_done(self.submit_home(Phase::Checkpoint, whole, &mended, false)).await
    }
}

/// A run of zeroes in `extent`.
fn zeroes(extent: Extent, mapped: &Mapped<Place>) -> Run {
    let (sequence, place) = (mapped.sequence, mapped.value);
    Run { extent, sequence, place, content: Payload::zeroes(extent.len), truth: None }
}
