//! Telling the kernel to forget what it caches.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use manylogs_ext4::{Changed, Ext4, Ino};
use manylogs_fuse::{Errno, Names, NodeId, Notifier, Reply};
use manylogs_plant::{Bug, is};

use crate::convert::to_node;

/// Notifications for which the kernel locks names.
enum OfNames {
    /// Inodes that nobody uses.
    Inodes(Vec<NodeId>),
    /// The inode of a name.
    Name(NodeId, Vec<u8>),
}

/// Notifications for which the kernel locks inodes and pages.
enum OfInodes {
    Attributes(NodeId),
    Content(NodeId),
    /// The list of a directory. The reply, which tells the list's end, follows.
    List(NodeId, Reply<Names>),
}

/// Sends notifications in two threads of its own. The kernel takes locks for a notification, and a
/// program that holds such a lock may wait for an answer of the file system's thread. A program
/// that has a directory locked may wait for the end of its list: so the thread that tells the end
/// is not the one that waits for locks of names.
#[derive(Clone)]
pub(crate) struct Teller {
    names: Sender<OfNames>,
    inodes: Sender<OfInodes>,
    /// The kernel has not yet answered the last request to forget inodes, or does not know that
    /// request.
    busy: Arc<AtomicBool>,
}

/// The receiving end of a [`Teller`], until there is a session.
pub(crate) struct ToTell {
    names: Receiver<OfNames>,
    inodes: Receiver<OfInodes>,
    busy: Arc<AtomicBool>,
}

impl ToTell {
    /// Starts the threads, which end when the last [`Teller`] is dropped. They are not joined,
    /// because they may be blocked in the kernel.
    pub(crate) fn start(self, notifier: Notifier) -> io::Result<()> {
        let Self { names, inodes, busy } = self;
        let (name, other) = (|name: &str| thread::Builder::new().name(name.to_owned()), notifier);
        let notifier = other.clone();
        name("mlfs-names").spawn(move || tell_of_names(&notifier, &names, &busy))?;
        name("mlfs-inodes").spawn(move || tell_of_inodes(&other, inodes))?;
        Ok(())
    }
}

impl Teller {
    pub(crate) fn new() -> (Self, ToTell) {
        let ((names, of_names), (inodes, of_inodes)) = (mpsc::channel(), mpsc::channel());
        let busy = Arc::new(AtomicBool::new(false));
        let to_tell = ToTell { names: of_names, inodes: of_inodes, busy: Arc::clone(&busy) };
        (Self { names, inodes, busy }, to_tell)
    }

    /// Asks the kernel to forget some inodes, if it knows too many.
    pub(crate) fn remind(&self, fs: &Ext4) {
        if self.busy.load(Ordering::Acquire) {
            return;
        }
        let too_many: Vec<Ino> = fs.to_forget();
        if too_many.is_empty() {
            return;
        }
        self.busy.store(true, Ordering::Release);
        let nodes = too_many.into_iter().map(to_node).collect();
        // The receiver is gone only at the end of the session.
        drop(self.names.send(OfNames::Inodes(nodes)));
    }

    /// Tells that an inode changed although no program asked for that.
    pub(crate) fn changed(&self, ino: Ino, what: Changed) {
        let node = to_node(ino);
        if what == Changed::Content && is(Bug::MlfsLossUntold) {
            return;
        }
        drop(self.inodes.send(match what {
            Changed::Attributes => OfInodes::Attributes(node),
            Changed::Content => OfInodes::Content(node),
        }));
    }

    /// Has the kernel look up a name, its directory and the list again, because it is unknown
    /// whether the name changed. The caller of the change has the directory locked until its
    /// answer, so that the kernel cannot forget the name before that.
    pub(crate) fn unknown(&self, dir: Ino, name: &[u8]) {
        if !is(Bug::MlfsMissingStays) {
            drop(self.names.send(OfNames::Name(to_node(dir), name.to_vec())));
            drop(self.inodes.send(OfInodes::Content(to_node(dir))));
        }
    }

    /// Tells the end of a list, once the kernel has forgotten its part of the list.
    pub(crate) fn end_forgotten(&self, dir: Ino, reply: Reply<Names>) {
        drop(self.inodes.send(OfInodes::List(to_node(dir), reply)));
    }
}

// A notification fails if the kernel does not know the inode or name, or if the session has ended.

fn tell_of_names(notifier: &Notifier, told: &Receiver<OfNames>, busy: &AtomicBool) {
    for tell in told {
        match tell {
            OfNames::Name(dir, name) => drop(notifier.forget_name(dir, &name)),
            // Kernels before Linux 6.18 do not know this request: they forget inodes when they need
            // memory.
            OfNames::Inodes(nodes) if notifier.prune(&nodes) == Err(Errno::INVAL) => {}
            OfNames::Inodes(_) => busy.store(false, Ordering::Release),
        }
    }
}

fn tell_of_inodes(notifier: &Notifier, told: Receiver<OfInodes>) {
    for tell in told {
        match tell {
            OfInodes::Attributes(node) => drop(notifier.forget_attributes(node)),
            OfInodes::Content(node) => drop(notifier.forget_content(node)),
            OfInodes::List(node, reply) => {
                let _ = notifier.forget_content(node);
                reply.send(&Names::with_room(0));
            }
        }
    }
}
