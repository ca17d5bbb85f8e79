//! Home writes by whole rows, on an array with parity whose write hole is closed (`hole=closed`).
//!
//! A row that a crash tears is wrong on a missing drive, also where nobody was writing. So a batch
//! first reads what else lies in its rows, and makes an image of the whole rows durable. Then it
//! writes the rows to their homes, makes that durable, and ends the image. Its locks are held until
//! then: an image that counts never has older content than a home. An opening after a crash writes
//! the rows of the image home once more.

use std::collections::BTreeSet;
use std::rc::Rc;

use manylogs_block::{Completion, Extent, Geometry, IoError, PAGE, Payload, Request, Sectors};
use manylogs_engine::{Phase, Reader};
use manylogs_logstore::DataSequence;
use manylogs_plant::{self as plant, Bug};

use super::copy::{Group, Run};
use super::home::{Under, settle};
use super::{CheckpointReport, Progress};
use crate::ondisk::row_image::{ImageOf, RowImage, Rows, array_of_homes, rows_most};
use crate::state::Inner;

/// Rows on their way home.
struct Strip {
    rows: Rows,
    /// The rows on each column.
    groups: Vec<Group>,
}

/// A home write, or why there is none.
type Started = (Group, Result<Under, IoError>);

impl Inner {
    /// The array, if homes are written by whole rows, each behind its image. Addresses are those of
    /// the volume.
    pub(crate) fn rows_of_homes(&self) -> Option<Geometry> {
        let has_room = !self.layout.images().is_empty();
        let array = self.array.filter(|array| array.parity > 0 && has_room)?;
        self.config().close_hole.then(|| array_of_homes(array))
    }

    /// What is locked while something in `extent` goes home: the stripes that it touches, if it
    /// goes by whole rows.
    pub(super) fn locked_at_home(&self, extent: Extent, rows: Option<Geometry>) -> Extent {
        match rows {
            Some(array) => extent.widened_to(array.stripe()),
            None => self.widen_to_physical(extent),
        }
    }

    /// Writes the rows of `runs` home, which are in order of address. The caller has locked the
    /// stripes.
    ///
    /// # Errors
    /// If the device fails. If an image could not be ended, no more writes are accepted.
    pub(super) async fn write_rows(
        self: &Rc<Self>,
        array: Geometry,
        runs: Vec<Run>,
        progress: &mut Progress,
    ) -> Result<(), IoError> {
        let room = self.layout.images();
        let most = array.row().map_or(1, |row| rows_most(room, row)).max(1);
        let mut strips = strips_of(array, runs, most).into_iter().peekable();
        let mut result = Ok(());
        while strips.peek().is_some() {
            let (mut batch, mut rows) = (Vec::new(), 0);
            while let Some(strip) = strips.next_if(|strip| rows + strip.rows.count <= most) {
                rows += strip.rows.count;
                batch.push(strip);
            }
            result = result.and(self.write_strips(array, batch, progress).await);
        }
        result
    }

    async fn write_strips(
        self: &Rc<Self>,
        array: Geometry,
        strips: Vec<Strip>,
        progress: &mut Progress,
    ) -> Result<(), IoError> {
        let contents = self.contents_of(&strips).await;
        let (mut image, mut going) = (RowImage::default(), Vec::new());
        let mut failed = Vec::new();
        for (strip, contents) in strips.into_iter().zip(contents) {
            match contents {
                Ok(contents) => {
                    image.rows.push(strip.rows);
                    contents.iter().for_each(|content| image.content.append(content.clone()));
                    going.push(strip.groups.into_iter().zip(contents).collect::<Vec<_>>());
                }
                Err(error) => {
                    let failing = strip.groups.into_iter().map(|group| (group, error.clone()));
                    failed.extend(failing.map(|(group, error)| (group, Err(error))));
                }
            }
        }
        let written = match image.rows.is_empty() {
            true => Vec::new(),
            false => self.write_with_image(&image, going, array, progress).await?,
        };
        let (floor, report) = (progress.floor, &mut progress.report);
        self.finish_groups(written.into_iter().chain(failed), floor, report).await
    }

    /// Writes rows home, behind their image. When this returns no image counts, or no more writes
    /// are accepted.
    async fn write_with_image(
        self: &Rc<Self>,
        image: &RowImage,
        going: Vec<Vec<(Group, Payload)>>,
        array: Geometry,
        progress: &mut Progress,
    ) -> Result<Vec<Started>, IoError> {
        let written = match self.write_image(image, array).await {
            Ok(()) => self.write_behind_image(going, progress).await,
            // The image may be whole nevertheless, and is ended like any other.
            Err(error) => {
                let all = going.into_iter().flatten();
                Ok(all.map(|(group, _)| (group, Err(error.clone()))).collect())
            }
        };
        let ended = match &written {
            Ok(_) => self.end_image(array).await,
            // The rows may not be durable at home. The image stays for the next opening.
            Err(error) => Err(error.clone()),
        };
        if ended.is_err() {
            // A later write to these homes must not meet an image that counts.
            let reason = "rows could not be made durable at home";
            self.engine.state.borrow_mut().store.fail(reason);
            self.engine.notify_progress();
        }
        ended.and(written)
    }

    async fn finish_groups(
        self: &Rc<Self>,
        groups: impl Iterator<Item = Started>,
        floor: DataSequence,
        report: &mut CheckpointReport,
    ) -> Result<(), IoError> {
        let mut result = Ok(());
        for (group, started) in groups {
            result = result.and(self.finish_group(group, started, floor, report).await);
        }
        result
    }

    /// The contents of the strips on each column, or the first error of a strip.
    async fn contents_of(&self, strips: &[Strip]) -> Vec<Result<Vec<Payload>, IoError>> {
        let mut found = Vec::with_capacity(strips.len());
        for some in strips.chunks(self.strips_at_once()) {
            let reads = |strip: &Strip| -> Vec<Vec<Completion>> {
                strip.groups.iter().map(|group| self.read_gaps(group)).collect()
            };
            let begun: Vec<_> = some.iter().map(reads).collect();
            for (strip, begun) in some.iter().zip(begun) {
                let mut contents = Vec::with_capacity(begun.len());
                // All reads are awaited, also if one has failed.
                for (group, reads) in strip.groups.iter().zip(begun) {
                    contents.push(joined(reads).await.map(|home| group.over(&home)));
                }
                found.push(contents.into_iter().collect());
            }
        }
        found
    }

    fn strips_at_once(&self) -> usize {
        let members = self.array.map_or(1, |array| usize::from(array.columns + array.parity));
        (self.at_once() / members).max(1)
    }

    /// Reads what is at home where a group has gaps.
    pub(super) fn read_gaps(&self, group: &Group) -> Vec<Completion> {
        if !group.has_gaps() {
            return Vec::new();
        }
        let parts = self.layout.home(group.extent);
        parts.map(|part| self.device.read(Reader::System, part)).collect()
    }

    /// Makes the image of rows durable that are about to go home.
    async fn write_image(&self, image: &RowImage, array: Geometry) -> Result<(), IoError> {
        let Some(row) = array.row() else { return Ok(()) };
        let incarnation = self.engine.state.borrow().store.root().incarnation;
        let content = image.encode(ImageOf { volume: self.volume, incarnation }, row);
        let place = Extent { len: content.len(), ..self.layout.images() };
        let mut write = Request::write_fua(place, content);
        if plant::is(Bug::HomeBeforeItsImage)
            && let Request::Write { fua, .. } = &mut write
        {
            *fua = false;
        }
        self.device.submit(Phase::Checkpoint, write).await.map(drop)
    }

    /// Writes rows whose image is durable. They are durable at home when this returns, except those
    /// whose write has failed.
    async fn write_behind_image(
        self: &Rc<Self>,
        going: Vec<Vec<(Group, Payload)>>,
        progress: &mut Progress,
    ) -> Result<Vec<Started>, IoError> {
        let (mut written, most): (Vec<Started>, _) = (Vec::new(), self.strips_at_once());
        let mut rest = going.into_iter().peekable();
        while rest.peek().is_some() {
            let first = written.len();
            for (group, content) in rest.by_ref().take(most).flatten() {
                let under = self.start(&group, content, progress);
                written.push((group, Ok(under)));
            }
            for (_, started) in &mut written[first..] {
                settle(started).await;
            }
        }
        self.engine.state.borrow_mut().home.is_dirty |= self.below.volatile_cache;
        if !plant::is(Bug::ImageEndedEarly) {
            self.make_durable(Phase::Checkpoint).await?;
        }
        Ok(written)
    }

    /// Makes the image durably count no more. Only then may anything else be written to its homes.
    async fn end_image(&self, array: Geometry) -> Result<(), IoError> {
        let Some(row) = array.row() else { return Ok(()) };
        let place = Extent { len: row, ..self.layout.images() };
        let ended = Request::write_fua(place, Payload::zeroes(row));
        self.device.submit(Phase::Checkpoint, ended).await.map(drop)
    }
}

/// The contents one behind the other, once all reads have ended, or the first error.
pub(super) async fn joined(reads: Vec<Completion>) -> Result<Payload, IoError> {
    let (mut content, mut failed) = (Payload::default(), None);
    for read in reads {
        match read.await {
            Ok(part) => content.append(part),
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    failed.map_or(Ok(content), Err)
}

/// The rows that `runs` touch, as strips of at most `most` rows.
fn strips_of(array: Geometry, runs: Vec<Run>, most: u64) -> Vec<Strip> {
    let (mut touched, mut parts) = (BTreeSet::new(), Vec::with_capacity(runs.len()));
    for run in runs {
        for chunk in array.chunks(run.extent) {
            let end = chunk.at + chunk.extent.len;
            touched.extend(chunk.at.0 / PAGE.0..end.0.div_ceil(PAGE.0));
            parts.push(part_in(&run, chunk.extent));
        }
    }
    let per_stripe = array.chunk.0 / PAGE.0;
    let mut all: Vec<Rows> = Vec::new();
    for row in touched {
        match all.last_mut() {
            Some(last)
                if last.first + last.count == row
                    && last.first / per_stripe == row / per_stripe
                    && last.count < most =>
            {
                last.count += 1;
            }
            _ => all.push(Rows { first: row, count: 1 }),
        }
    }
    let strip = |rows: Rows| {
        let groups =
            rows.extents(array).map(|extent| Group { extent, runs: runs_in(&parts, extent) });
        Strip { rows, groups: groups.collect() }
    };
    all.into_iter().map(strip).collect()
}

/// The parts of `runs` in `extent`; each run lies in one chunk.
fn runs_in(runs: &[Run], extent: Extent) -> Vec<Run> {
    let first = runs.partition_point(|run| run.extent.end() <= extent.start);
    let within = runs[first..].iter().take_while(|run| run.extent.start < extent.end());
    within.map(|run| part_in(run, run.extent.intersection(extent))).collect()
}

fn part_in(run: &Run, extent: Extent) -> Run {
    run.part(Sectors(extent.start.0 - run.extent.start.0), extent.len)
}

#[cfg(test)]
mod tests {
    use manylogs_logstore::LogId;
    use manylogs_logstore::store::Place;

    use super::*;

    const ARRAY: Geometry =
        Geometry { chunk: Sectors(32), columns: 3, copies: 1, parity: 1, first: Sectors(0) };

    fn run(start: u64, len: u64) -> Run {
        Run {
            extent: Extent::new(start, len),
            sequence: DataSequence(1),
            place: Place::Zeroes { log: LogId(0) },
            content: Payload::tags(start, Sectors(len)),
            truth: None,
        }
    }

    #[test]
    fn rows_go_whole_and_what_is_not_written_keeps_its_content() {
        // Row 1 of stripe 0 on the second column, and the end of stripe 0 with the start of 1.
        let strips = strips_of(ARRAY, vec![run(42, 4), run(90, 20)], 100);
        let rows: Vec<Rows> = strips.iter().map(|strip| strip.rows).collect();
        let expected = [(1, 1), (3, 1), (4, 2)].map(|(first, count)| Rows { first, count });
        assert_eq!(rows, expected);
        let extents: Vec<Extent> = strips[0].groups.iter().map(|group| group.extent).collect();
        assert_eq!(extents, [Extent::new(8, 8), Extent::new(40, 8), Extent::new(72, 8)]);
        for group in strips.iter().flat_map(|strip| &strip.groups) {
            let home = Payload::tags(1000 + group.extent.start.0, group.extent.len);
            let written = |at: u64| (42..46).contains(&at) || (90..110).contains(&at);
            let right = group.extent.range().map(|at| if written(at) { at } else { 1000 + at });
            let content = group.over(&home);
            for (skip, tag) in right.enumerate() {
                let own = content.slice(Sectors(skip as u64), Sectors(1));
                assert_eq!(own, Payload::tags(tag, Sectors(1)));
            }
        }
    }

    #[test]
    fn strips_are_no_longer_than_an_image() {
        let strips = strips_of(ARRAY, vec![run(0, 96)], 3);
        let counts: Vec<u64> = strips.iter().map(|strip| strip.rows.count).collect();
        assert_eq!(counts, [3, 1]);
        assert!(strips.iter().flat_map(|strip| &strip.groups).all(|group| !group.has_gaps()));
    }
}
