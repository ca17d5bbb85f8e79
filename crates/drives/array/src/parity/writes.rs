//! Writes: rows are taken from their queues, and written with their parity.

use std::mem::take;
use std::rc::Rc;

use manylogs_block::{
    Chunk, Completion, Extent, IoResult, PAGE, Payload, Request, Sectors, all_done, completion,
};
use manylogs_plant::{self as plant, Bug};

use super::Parity;
use super::reads::MemberRead;
use super::rows::{Group, Kind, Method, Part, Ticket};
use super::stripe_content::{completed, parity_after, parity_of};

/// Reads and writes of a group that are under way.
struct Begun {
    group: Group,
    method: Method,
    /// The columns that are read.
    columns: Vec<u16>,
    data: Vec<MemberRead>,
    parities: Vec<MemberRead>,
}

impl Parity {
    /// Takes the parts of a write into the queues of their rows.
    pub(super) fn write(
        &self,
        extent: Extent,
        payload: &Payload,
        fua: bool,
        urgent: bool,
    ) -> Completion {
        let (completer, answer) = completion();
        let pages: Vec<Chunk> = self.0.geometry.chunks(extent).flat_map(pages_of).collect();
        if pages.is_empty() {
            return Completion::ready(Ok(Payload::default()));
        }
        let ticket = Ticket::new(pages.len(), completer);
        let mut waiting = self.0.waiting.borrow_mut();
        for Chunk { column, at, extent: page } in pages {
            let payload = payload.slice(Sectors(page.start.0 - extent.start.0), page.len);
            let (from, ticket) = (Sectors(at.0 % PAGE.0), Rc::clone(&ticket));
            let part = Part { column, from, payload, fua, urgent, ticket };
            waiting.entry(at.0 / PAGE.0).or_default().push(part);
        }
        drop(waiting);
        self.arm();
        answer
    }

    /// Begins the writes of all rows that are not in work.
    pub(super) fn begin_waiting(&self) {
        for group in self.free_groups() {
            let begun = self.begin(group);
            let array = self.clone();
            if begun.data.is_empty() && begun.parities.is_empty() {
                // No reads: so the writes go along with those of the next rows.
                let (rows, writes) = array.write_group(begun, Vec::new(), Vec::new());
                self.0.runtime.spawn(async move { array.end(&rows, all_done(writes).await) });
            } else {
                self.0.runtime.spawn(async move { array.read_and_write(begun).await });
            }
        }
    }

    /// Takes the waiting rows that are not in work, those that are written alike together.
    fn free_groups(&self) -> Vec<Group> {
        let (mut waiting, mut busy) = (self.0.waiting.borrow_mut(), self.0.busy.borrow_mut());
        let free: Vec<u64> = waiting.keys().copied().filter(|row| !busy.contains(row)).collect();
        let rows_of_stripe = self.0.geometry.chunk.0 / PAGE.0;
        let mut groups: Vec<Group> = Vec::new();
        for row in free {
            let Some(parts) = waiting.remove(&row) else { continue };
            busy.insert(row);
            let kind = Kind::of(&parts);
            match groups.last_mut() {
                Some(last)
                    if last.first + last.rows.len() as u64 == row
                        && last.first / rows_of_stripe == row / rows_of_stripe
                        && last.kind == kind =>
                {
                    last.rows.push(parts);
                }
                _ => groups.push(Group { first: row, kind, rows: vec![parts] }),
            }
        }
        groups
    }

    /// Sends the reads that a group needs.
    fn begin(&self, group: Group) -> Begun {
        let (columns, place) = (self.0.geometry.columns, group.place());
        let stripe = self.stripe_of(place);
        let live = (0..self.0.rotation.parity)
            .filter(|which| self.holds(self.0.rotation.of_parity(stripe, *which), place));
        let gone = |column: &u16| !self.holds(self.0.rotation.of_data(stripe, *column), place);
        let is_missing = (0..columns).any(|column| gone(&column));
        let method = Method::choose(&group.kind, columns, live.count(), is_missing);
        let urgent = group.kind.urgent;
        let reads = method.reads(&group.kind, columns).into_iter().filter(|column| !gone(column));
        let columns: Vec<u16> = reads.collect();
        let member = |column: &u16| self.0.rotation.of_data(stripe, *column);
        let data = columns.iter().map(|column| self.read_member(member(column), place, urgent));
        let data: Vec<_> = data.collect();
        let parities = match method.reads_parity() {
            true => self.read_parities(place, urgent),
            false => Vec::new(),
        };
        if self.0.computes && !(data.is_empty() && parities.is_empty()) {
            self.0.read_first.borrow_mut().extend(group.numbers());
        }
        Begun { group, method, columns, data, parities }
    }

    async fn read_and_write(&self, mut begun: Begun) {
        loop {
            let lost = self.0.members.lost();
            let (data, old) = (take(&mut begun.data), take(&mut begun.parities));
            let (data, old) = (self.all(data).await, self.all(old).await);
            let (data, old) = match (data, old) {
                (Ok(data), Ok(old)) => (data, old),
                (Err(error), _) | (_, Err(error)) => return self.end(&begun.group, Err(error)),
            };
            let goes_on = data.iter().all(Option::is_some) && self.0.members.lost() == lost;
            if goes_on || plant::is(Bug::LostReadTakenAsZeroes) {
                let len = begun.group.place().len;
                let read = data.into_iter().map(|it| it.unwrap_or_else(|| Payload::zeroes(len)));
                let data = begun.columns.iter().copied().zip(read).collect();
                let (group, writes) = self.write_group(begun, data, old);
                self.unplug();
                return self.end(&group, all_done(writes).await);
            }
            // A member was lost meanwhile, and what it held must come from the others.
            begun = self.begin(begun.group);
            self.unplug();
        }
    }

    /// Sends the writes of a group whose old content was read.
    fn write_group(
        &self,
        begun: Begun,
        data: Vec<(u16, Payload)>,
        parities: Vec<Option<Payload>>,
    ) -> (Group, Vec<Completion>) {
        let Begun { group, method, .. } = begun;
        let place = group.place();
        let stripe = self.stripe_of(place);
        let (new, parities) = self.contents(&group, method, data, &parities);
        let Kind { fua, urgent, .. } = group.kind;
        let hint = manylogs_block::Hint::None;
        let data =
            new.into_iter().map(|(column, it)| (self.0.rotation.of_data(stripe, column), it));
        let parities =
            (0..).zip(parities).map(|(which, it)| (self.0.rotation.of_parity(stripe, which), it));
        let takes = |member: u16| self.0.members.takes_writes(member.into());
        let writes = data.chain(parities).filter(|(member, _)| takes(*member));
        let writes = writes.map(|(member, payload)| {
            let write = Request::Write { extent: place, payload, fua, hint };
            self.push_write(member, write, urgent)
        });
        let writes = writes.collect();
        (group, writes)
    }

    /// The new contents of the columns that are written, and of the parities.
    fn contents(
        &self,
        group: &Group,
        method: Method,
        data: Vec<(u16, Payload)>,
        old_parities: &[Option<Payload>],
    ) -> (Vec<(u16, Payload)>, Vec<Payload>) {
        let (len, which) = (group.place().len, 0..self.0.rotation.parity);
        let mut old: Vec<Option<Payload>> = vec![None; usize::from(self.0.geometry.columns)];
        for (column, content) in data {
            old[usize::from(column)] = Some(content);
        }
        if method == Method::Everything {
            let all = completed(old, old_parities, len);
            old = all.unwrap_or_default().into_iter().map(Some).collect();
            old.resize(usize::from(self.0.geometry.columns), None);
        }
        let column = |column: u16| old[usize::from(column)].as_ref();
        let written =
            group.kind.columns.iter().map(|(it, _)| (*it, group.content(*it, column(*it))));
        let written: Vec<(u16, Payload)> = written.collect();
        if !self.0.computes {
            return (written, which.map(|_| Payload::absent(len)).collect());
        }
        if method == Method::Change {
            let change = |(at, new): &(u16, Payload)| {
                (*at, column(*at).cloned().unwrap_or_default(), new.clone())
            };
            let changes: Vec<_> = written.iter().map(change).collect();
            let old = |which: u16| old_parities.get(usize::from(which)).cloned().flatten();
            let absent = || Payload::absent(len);
            let after =
                |which| parity_after(which, &old(which).unwrap_or_else(absent), &changes, len);
            return (written, which.map(after).collect());
        }
        for (column, content) in &written {
            old[usize::from(*column)] = Some(content.clone());
        }
        let all: Vec<Payload> =
            old.into_iter().map(|it| it.unwrap_or_else(|| Payload::absent(len))).collect();
        (written, which.map(|which| parity_of(which, &all, len)).collect())
    }

    /// Answers the writes of a group, and begins what waited for its rows.
    fn end(&self, group: &Group, result: IoResult<()>) {
        self.free(group.numbers());
        group.end(&result);
    }
}

/// The parts of a chunk, page by page.
fn pages_of(chunk: Chunk) -> impl Iterator<Item = Chunk> {
    let mut left = chunk;
    std::iter::from_fn(move || {
        let len = left.extent.len.min(Sectors(PAGE.0 - left.at.0 % PAGE.0));
        let page = Chunk { extent: Extent { len, ..left.extent }, ..left };
        left.at = left.at + len;
        left.extent = Extent::between(page.extent.end(), left.extent.end());
        (!len.eq(&Sectors(0))).then_some(page)
    })
}
