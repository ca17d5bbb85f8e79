//! Threads that ask for attributes and may cache an answer that a change has made stale.
//!
//! The kernel drops an answer that a later change overtook only if the change raised the version of
//! the inode's attributes. Some changes do not raise it: those of extended attributes, of names
//! (for their directory and for an inode that moves or gets one more), and `fallocate` that keeps
//! the size. An answer from before such a change would stay cached for good if it were taken in
//! afterwards. Telling the kernel to forget the attributes raises the version. That costs one more
//! request for attributes, and is left out where no thread can have such an answer.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use manylogs_ext4::{Error, Ext4, Ino};
use manylogs_fuse::{Answer, NodeId, Reply};

use crate::convert::to_node;

/// After this time the kernel has cached an answer: the thread that asked was woken with it.
const TAKEN_IN: Duration = Duration::from_secs(1);

/// The questions for attributes under way. Clones share one table.
#[derive(Clone, Default)]
pub(crate) struct Asking(Arc<Mutex<Table>>);

#[derive(Default)]
struct Table {
    questions: Vec<Question>,
    last: u64,
}

/// Whose attributes an answer has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    One(NodeId),
    /// Those of many inodes, or of one that is not known yet.
    Any,
}

struct Question {
    number: u64,
    /// The thread that asks.
    thread: u32,
    whose: Whose,
    answered: Option<Instant>,
}

/// A question under way, until it is dropped.
pub(crate) struct Asked {
    asking: Asking,
    number: u64,
}

impl Asking {
    fn table(&self) -> MutexGuard<'_, Table> {
        // No code that may panic runs under the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a thread asks for the attributes of an inode.
    pub(crate) fn of(&self, thread: u32, node: NodeId) -> Asked {
        self.begin(thread, Whose::One(node))
    }

    /// Notes that a thread asks for the attributes of many inodes, or of one that is not known yet.
    pub(crate) fn of_any(&self, thread: u32) -> Asked {
        self.begin(thread, Whose::Any)
    }

    fn begin(&self, thread: u32, whose: Whose) -> Asked {
        let mut table = self.table();
        table.settle(thread, Instant::now());
        table.last += 1;
        let number = table.last;
        table.questions.push(Question { number, thread, whose, answered: None });
        Asked { asking: self.clone(), number }
    }

    /// Whether no thread but `thread` may have an older answer.
    fn is_quiet(&self, thread: u32) -> bool {
        let mut table = self.table();
        table.settle(thread, Instant::now());
        table.questions.is_empty()
    }

    /// Whether a thread may have an older answer about `node`, which `thread` has changed.
    fn overtaken(&self, thread: u32, node: NodeId) -> bool {
        let mut table = self.table();
        table.settle(thread, Instant::now());
        let concerns = |whose| whose == Whose::Any || whose == Whose::One(node);
        table.questions.iter().any(|question| concerns(question.whose))
    }
}

impl Table {
    /// Drops the answered questions of `thread`, which asks again and so has taken in its answers,
    /// and those that were answered long ago.
    fn settle(&mut self, thread: u32, now: Instant) {
        self.questions.retain(|question| match question.answered {
            Some(at) => question.thread != thread && now.duration_since(at) < TAKEN_IN,
            None => true,
        });
    }
}

impl Asked {
    /// The question turned out to be about this inode alone.
    pub(crate) fn found(&self, node: NodeId) {
        let mut table = self.asking.table();
        let own = table.questions.iter_mut().find(|question| question.number == self.number);
        if let Some(question) = own {
            question.whose = Whose::One(node);
        }
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        let mut table = self.asking.table();
        let own = table.questions.iter_mut().find(|question| question.number == self.number);
        if let Some(question) = own {
            question.answered = Some(Instant::now());
        }
    }
}

/// Inodes that a change touches and whose attributes its answer does not carry.
pub(crate) struct Touched {
    asking: Asking,
    thread: u32,
    nodes: Vec<NodeId>,
    /// Names of further touched inodes: old and new names of the change.
    names: Vec<(Ino, Vec<u8>)>,
    /// Has the kernel always forget their attributes, because it does not do so by itself.
    always: bool,
}

impl Touched {
    pub(crate) fn new(asking: &Asking, thread: u32, nodes: Vec<NodeId>) -> Self {
        Self { asking: asking.clone(), thread, nodes, names: Vec::new(), always: false }
    }

    /// Adds the inodes that have these names.
    pub(crate) fn and_named(self, names: Vec<(Ino, Vec<u8>)>) -> Self {
        Self { names, ..self }
    }

    pub(crate) fn always(self) -> Self {
        Self { always: true, ..self }
    }

    /// Called before the answer, when the change was made or failed (and may have been made in
    /// part): has the kernel forget attributes that the answer does not carry.
    pub(crate) async fn forget<A: Answer + ?Sized, T>(
        mut self,
        fs: &Ext4,
        done: &Result<T, Error>,
        reply: &Reply<A>,
    ) {
        let always = self.always || done.is_err();
        if !always && self.asking.is_quiet(self.thread) {
            return;
        }
        for (dir, name) in std::mem::take(&mut self.names) {
            // An inode that cannot be found is looked up by name again anyway.
            if let Ok(known) = fs.lookup(dir, &name).await {
                self.nodes.push(to_node(known.ino));
            }
        }
        for node in self.nodes {
            if always || self.asking.overtaken(self.thread, node) {
                reply.forget_attributes(node);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: NodeId = NodeId(11);
    const OTHER: NodeId = NodeId(12);

    #[test]
    fn an_answer_under_way_is_overtaken() {
        let asking = Asking::default();
        assert!(asking.is_quiet(1));
        let asked = asking.of(2, NODE);
        assert!(!asking.is_quiet(1));
        assert!(asking.overtaken(1, NODE) && !asking.overtaken(1, OTHER));
        drop(asked);
        assert!(asking.overtaken(1, NODE), "it was sent, and may not be taken in");
    }

    #[test]
    fn a_list_may_have_any_inode_and_a_lookup_the_one_it_finds() {
        let asking = Asking::default();
        let asked = asking.of_any(2);
        assert!(asking.overtaken(1, NODE) && asking.overtaken(1, OTHER));
        asked.found(OTHER);
        assert!(!asking.overtaken(1, NODE) && asking.overtaken(1, OTHER));
    }

    #[test]
    fn a_thread_that_goes_on_has_taken_its_answer_in() {
        let asking = Asking::default();
        drop(asking.of(1, NODE));
        assert!(!asking.overtaken(1, NODE));
        drop(asking.of(2, NODE));
        drop(asking.of(2, OTHER));
        assert!(!asking.overtaken(1, NODE) && asking.overtaken(1, OTHER));
        let later = Instant::now() + TAKEN_IN;
        asking.table().settle(1, later);
        assert!(!asking.overtaken(1, OTHER));
        let under_way = asking.of(1, NODE);
        asking.table().settle(1, later + TAKEN_IN);
        assert!(asking.overtaken(1, NODE), "as long as it takes");
        drop(under_way);
    }
}
