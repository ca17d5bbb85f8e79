//! Write-back of small files together: what lies side by side on the device is one request.
//!
//! Small files that are written one by one cost a request each, although the blocks that are
//! claimed for new ones lie side by side. So the small files that wait are gathered in steps, each
//! step is sorted by place, and each run of neighbours is written by one request.
//!
//! One request is under way at a time, as when the files are written one by one: files that lie
//! far apart take no more of the device from others than before. A file that somebody waits for
//! (a sync, a cut, a deletion) leaves its step when the request under way is done. So nobody waits
//! for the other requests of a step. A sync of one file gathers no others.
//!
//! Where the journal takes short runs of content ([`Mode::Runs`]) the length of the neighbours
//! together counts: new files that lie side by side are a long run, which goes home. So bulk data
//! is written once, and not into the logs and then home. A short run of neighbours is left to the
//! journal, file by file, and so is content that replaces other content: the log may hold the older
//! content, and a write of 32 KiB or less goes to the log nearest the head.

use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;

use manylogs_block::{Hint, Payload, Request, to_usize};
use manylogs_plant::{Bug, is};

use super::pass::ON_THE_WAY_COST;
use super::place::Piece;
use super::writeback::Held;
use crate::core::{Core, Mode};
use crate::error::Result;
use crate::inode::{Node, Page};
use crate::lock::ReadGuard;
use crate::memory::Part;
use crate::pages_lock::PagesGuard;
use crate::units::{Ino, Run};

/// Most dirty pages of a file that is written with others: 64 KiB.
const SMALL: usize = 16;
/// Most files of a step.
const MEMBERS: usize = 128;
/// Most pages of a step, and so of a request: 1 MiB.
const STEP: usize = 256;

/// A small file whose pages wait for their request. Nobody else writes them to the device, or takes
/// blocks of the file away.
struct Member {
    node: Rc<Node>,
    piece: Piece,
    pages: Vec<Held>,
    /// The file's size when the pages were taken.
    size: u64,
    alone: PagesGuard,
    content: ReadGuard,
}

impl Member {
    const fn run(&self) -> Run {
        self.piece.run()
    }

    /// Whether a task waits for the file.
    fn is_wanted(&self) -> bool {
        self.alone.is_wanted() || self.content.is_wanted()
    }

    /// Whether its blocks lie behind those of `before`.
    fn follows(&self, before: &Self) -> bool {
        before.run().range().end == self.run().range().start
    }
}

impl Core {
    /// Writes the small ones of `dirty` files to the device, as far as nobody else works on them.
    /// Returns those of which everything was written. The caller writes the others: a request that
    /// fails does not say whose content is lost, so its files are written one by one.
    pub(super) async fn write_together(&self, dirty: &[Rc<Node>]) -> BTreeSet<Ino> {
        let mut written = BTreeSet::new();
        if self.mode == Mode::Data {
            // All content goes into transactions, and needs no request.
            return written;
        }
        // Of two passes the second would find the first one's files taken.
        let _turn = self.backlog.together.take().await;
        let mut small: VecDeque<_> = dirty.iter().filter(|node| small_pages(node) > 0).collect();
        if small.len() < 2 {
            return written;
        }
        let quarter = to_usize(self.memory.most(Part::Writing) / 4 / ON_THE_WAY_COST);
        let most = quarter.min(STEP);
        while !small.is_empty() && self.journal.is_sound() {
            let wanted: usize = small.iter().take(MEMBERS).map(|node| small_pages(node)).sum();
            let room = wanted.clamp(SMALL, most);
            let bytes = room as u64 * ON_THE_WAY_COST;
            let _held = self.memory.take(Part::Writing, bytes).await;
            let mut members = self.gather(&mut small, room).await;
            members.sort_by_key(|member| member.run().start);
            let mut members = VecDeque::from(members);
            while let Some(run) = next_run(&mut members) {
                let blocks = run.iter().map(|member| member.run().blocks).sum();
                if !self.is_journalled(blocks) {
                    written.extend(self.write_run(run).await);
                }
            }
        }
        written
    }

    /// Takes the first of the files, as many as a step has: their pages are claimed a place. Ends
    /// early if somebody waits for one of them.
    async fn gather(&self, small: &mut VecDeque<&Rc<Node>>, room: usize) -> Vec<Member> {
        let (mut members, mut left) = (Vec::<Member>::new(), room);
        while members.len() < MEMBERS && !members.iter().any(Member::is_wanted) {
            // A file may have changed while others were planned.
            let Some(node) = small.front().copied() else { break };
            let pages = small_pages(node);
            if pages > left {
                break;
            }
            small.pop_front();
            if pages == 0 {
                continue;
            }
            if let Some(member) = self.member(node).await {
                left -= member.pages.len();
                members.push(member);
            }
        }
        members
    }

    /// The file as a member of a step; `None` if others work on it, if its pages do not go to one
    /// run of blocks, or if they belong into the journal whatever lies beside them.
    async fn member(&self, node: &Rc<Node>) -> Option<Member> {
        let (alone, content) = (node.writing.take_all_now()?, node.content.read_now()?);
        if self.is_durable(node).await && !is(Bug::NearTogetherTakesKept) {
            return None;
        }
        let size = node.size.get().unwrap_or(0);
        let held = |(number, page): (&u32, &Page)| (*number, page.bytes.clone(), page.version);
        let pages: Vec<Held> = node.pages.borrow().iter().map(held).collect();
        let mut pieces = self.plan(node, &pages, None).await.ok()?;
        let piece = pieces.pop().filter(|_| pieces.is_empty())?;
        let replaces = piece.claim.is_none() && self.mode.journals_content();
        if replaces && !is(Bug::NearTogetherOverLogged) {
            return None;
        }
        Some(Member { node: Rc::clone(node), piece, pages, size, alone, content })
    }

    /// Writes neighbours by one request, and maps their blocks. Returns those that are done.
    async fn write_run(&self, run: Vec<Member>) -> Vec<Ino> {
        let Some(first) = run.first() else { return Vec::new() };
        let pages = || run.iter().flat_map(|member| &member.pages);
        let blocks = manylogs_block::narrow(pages().count() as u64);
        let mut payload = Payload::with_room_for(pages().count());
        pages().for_each(|(_, bytes, _)| payload.append(Payload::bytes(bytes.clone())));
        let place = Run { start: first.run().start, blocks };
        let may_be_logged = self.mode.journals_content() && !is(Bug::NearTogetherOverLogged);
        if may_be_logged && self.leave_journal(place).await.is_err() {
            return Vec::new();
        }
        let extent = place.sectors();
        let write = Request::Write { extent, payload, fua: false, hint: Hint::None };
        let write = vec![self.device.submit(write)];
        let arrived = self.written(run.iter().map(|member| &*member.node), write).await;
        if arrived.is_err() && !is(Bug::Ext4TogetherFailedClean) {
            return Vec::new();
        }
        let mut done = Vec::new();
        for member in run {
            let node = Rc::clone(&member.node);
            if self.map_whole(member).await.is_ok() {
                done.push(node.ino);
            }
            if node.is_dirty() {
                self.backlog.note_dirty();
            }
        }
        done
    }

    /// Maps what the device has written of a file, and puts its size and times into a transaction.
    async fn map_whole(&self, member: Member) -> Result<()> {
        let Member { node, piece, pages, size, alone: _alone, content: _content } = member;
        self.map_pieces(&node, vec![piece]).await?;
        self.clean(&node, &pages);
        self.put_size(&node, size).await
    }
}

/// The dirty pages of a file that may be written with others; 0 if it may not.
fn small_pages(node: &Node) -> usize {
    let pages = node.pages.borrow();
    // Pages that failed before are written without others.
    let may = pages.len() <= SMALL && pages.values().all(|page| page.failures == 0);
    if may && !node.is_ending.get() { pages.len() } else { 0 }
}

/// The first members, sorted by place, that are neighbours. All members that somebody waits for by
/// now are let go.
fn next_run(members: &mut VecDeque<Member>) -> Option<Vec<Member>> {
    if !is(Bug::Ext4TogetherNotLetGo) {
        members.retain(|member| !member.is_wanted());
    }
    let mut run: Vec<Member> = vec![members.pop_front()?];
    while let Some(member) = members.pop_front() {
        if run.last().is_some_and(|before| !member.follows(before)) {
            members.push_front(member);
            break;
        }
        run.push(member);
    }
    Some(run)
}
