//! Metadata that leads to kept content ([`Class::Leading`]), in a pass. It stays in the logs with
//! the content. Its home gets another form meanwhile, which leads to none of that content. When the
//! content is home, the metadata follows.

use std::fmt;
use std::rc::Rc;

use manylogs_block::{Extent, IoError, Payload, Sectors};
use manylogs_engine::Phase;
use manylogs_logstore::store::Place;
use manylogs_logstore::{Class, DataSequence, EntryKind, Mapped};
use manylogs_plant::{self as plant, Bug};

use super::Progress;
use super::copy::{Renewed, Run};
use crate::requests::write::What;
use crate::state::{Inner, State};
use crate::volume::Volume;

/// What an owner knows of metadata of the class [`Class::Leading`]: see
/// [`Volume::set_home_form`].
pub trait HomeForm: fmt::Debug {
    /// What lies at home in place of `content`, the metadata at `extent`, as long as content that
    /// it leads to is in the logs alone; `None` if it leads to none of that. `not_home` says which
    /// parts of an extent are in the logs alone. The answer is as long as `content`.
    fn home_form(
        &self,
        extent: Extent,
        content: &Payload,
        not_home: &dyn Fn(Extent) -> Vec<Extent>,
    ) -> Option<Payload>;
}

/// The part of a pass: leading metadata goes home after the content that it leads to is durable
/// there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// All versions, except leading ones that leave the logs.
    Content,
    /// Leading versions that leave the logs.
    Leading,
}

/// A leading version that was brought home.
#[derive(Debug)]
pub(super) struct Led {
    extent: Extent,
    sequence: DataSequence,
    /// Its content, if its home has another form.
    truth: Option<Payload>,
    content: Payload,
}

impl Volume {
    /// From now on the homes of versions of the class [`Class::Leading`] have the form that
    /// `form` gives them while content is kept. Without it such versions stay in the logs, their
    /// homes stay as they are, and a drain brings them home after the content. Only the first call
    /// counts.
    pub fn set_home_form(&self, form: Rc<dyn HomeForm>) {
        _ = self.inner().home_form.set(form);
    }
}

impl Progress {
    /// Whether the pass brings this version home.
    pub(super) fn takes(&self, mapped: &Mapped<Place>) -> bool {
        if mapped.value.is_leading() {
            return self.takes_leading(mapped.sequence);
        }
        if self.stage == Stage::Leading {
            return false;
        }
        let floor = if mapped.value.is_kept() { self.keeps_from } else { self.floor };
        let is_newest = mapped.value.is_kept_metadata() && mapped.sequence.next() == floor;
        if is_newest && plant::is(Bug::MetadataLeftBehind) {
            return false;
        }
        mapped.sequence < floor
    }

    /// Whether the pass brings a leading version home, in its own form or in another.
    pub(super) fn takes_leading(&self, sequence: DataSequence) -> bool {
        let leaves = sequence < self.keeps_from;
        match self.stage {
            Stage::Leading => leaves,
            Stage::Content if leaves && plant::is(Bug::LeadingWithContent) => true,
            Stage::Content => !leaves && self.has_form && self.is_due(sequence),
        }
    }

    /// Whether the home of a leading version that stays is older than the version, or may say
    /// *unwritten* of content that went home since.
    fn is_due(&self, sequence: DataSequence) -> bool {
        sequence < self.floor && (self.looks_again || sequence >= self.last_floor)
    }

    /// Notes a version that could not be read: its floor does not pass it. The home of a leading
    /// version is older than the version as well, so the other floor must not pass it either.
    pub(super) fn note_unread(&mut self, run: &Run) {
        let changed = run.place.is_leading() && run.sequence >= self.last_floor;
        if run.place.is_kept() {
            hold_back(&mut self.kept_back, run.sequence);
        }
        if changed || !run.place.is_kept() {
            hold_back(&mut self.held_back, run.sequence);
        }
    }
}

impl Inner {
    /// Prepares the leading versions of a pass. Without a form for their homes the floor does not
    /// pass those that stay and changed, so that a later pass knows that their homes are older.
    pub(super) fn begin_leading(&self, state: &mut State, progress: &mut Progress) {
        progress.has_form = self.home_form.get().is_some();
        progress.looks_again = std::mem::take(&mut state.kept_left);
        if progress.has_form || !state.store.keeps() {
            return;
        }
        state.kept_left |= progress.looks_again;
        let waits = |mapped: &Mapped<Place>| {
            mapped.value.is_leading()
                && mapped.sequence >= progress.keeps_from.max(progress.last_floor)
        };
        let waiting = state.store.kept().filter(|(_, mapped)| waits(mapped));
        progress.held_back = waiting.map(|(_, mapped)| mapped.sequence).min();
    }

    /// Whether leading versions leave the logs in this pass: they follow when the content is
    /// durable at home.
    pub(super) async fn ends_content(
        self: &Rc<Self>,
        progress: &mut Progress,
    ) -> Result<bool, IoError> {
        let leaves = {
            let state = self.engine.state.borrow();
            let leaves = |found: &Mapped<Place>| {
                found.value.is_leading() && found.sequence < progress.keeps_from
            };
            state.store.keeps() && state.store.kept().any(|(_, found)| leaves(&found))
        };
        if leaves {
            self.engine.state.borrow_mut().home.is_dirty |= self.below.volatile_cache;
            self.make_durable(Phase::Checkpoint).await?;
            progress.stage = Stage::Leading;
        }
        Ok(leaves)
    }

    /// Gives leading versions the form that their homes should have. Returns them.
    pub(super) fn put_home_forms(&self, runs: &mut [Run], progress: &Progress) -> Vec<Led> {
        let Some(owner) = self.home_form.get() else { return Vec::new() };
        let keeps_from = progress.keeps_from;
        let from = match progress.stage {
            Stage::Content if !plant::is(Bug::LeadingWithContent) => DataSequence(0),
            _ => progress.kept_back.map_or(keeps_from, |back| back.min(keeps_from)),
        };
        let not_home = |extent: Extent| self.not_home(extent, from);
        let mut led = Vec::new();
        for run in runs.iter_mut().filter(|run| run.place.is_leading()) {
            let form = owner.home_form(run.extent, &run.content, &not_home);
            run.truth = form.map(|form| std::mem::replace(&mut run.content, form));
            let (truth, content) = (run.truth.clone(), run.content.clone());
            led.push(Led { extent: run.extent, sequence: run.sequence, truth, content });
        }
        led
    }

    /// The parts of `extent` whose newest content is not at home, or not durable there. Kept
    /// versions before `from` are home.
    fn not_home(&self, extent: Extent, from: DataSequence) -> Vec<Extent> {
        let state = self.engine.state.borrow();
        if state.home.is_unsettled(&state.store, extent) {
            return vec![extent];
        }
        let slots = &state.store.entries().slots;
        let is_missing = |mapped: &Mapped<Place>| match mapped.value {
            place if place.is_kept_content() => mapped.sequence >= from,
            Place::Lost { .. } => true,
            Place::Buffered { slot, .. } => slots.get(slot).entry.is_kept_content(),
            Place::Log { .. } | Place::Zeroes { .. } => false,
        };
        let parts = state.store.map().lookup(extent);
        let missing = parts.filter(|(_, mapped)| mapped.as_ref().is_some_and(is_missing));
        missing.map(|(part, _)| part).collect()
    }

    /// Settles leading versions whose homes are written: one that leaves the logs too early is
    /// logged anew, and one that leads to no kept content any more becomes ordinary metadata. The
    /// caller holds the locks on their homes.
    pub(super) fn settle_leading(self: &Rc<Self>, led: Vec<Led>, progress: &mut Progress) {
        let which = Renewed::Below(progress.floor);
        for Led { extent, sequence, truth, content } in led {
            let leaves = progress.stage == Stage::Leading;
            let class = match (&truth, leaves) {
                (Some(_), true) => Class::Leading,
                (None, false) => Class::Metadata,
                _ => continue,
            };
            let what = What::of(EntryKind::Data, class);
            let content = truth.unwrap_or(content);
            let left = self.renew_what_fits(what, extent, Some(&content), which);
            if left > Sectors(0) && leaves {
                // There is no room: it stays where it is.
                hold_back(&mut progress.kept_back, sequence);
            }
        }
    }
}

/// Lowers a bound, so that a floor does not pass `sequence`.
fn hold_back(bound: &mut Option<DataSequence>, sequence: DataSequence) {
    *bound = Some(bound.map_or(sequence, |old| old.min(sequence)));
}
