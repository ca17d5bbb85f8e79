//! The inodes in memory.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use manylogs_block::to_usize;

use super::Known;
use super::node::{NODE_COST, Node};
use crate::memory::{Memory, Part};
use crate::units::Ino;

/// Idle inodes that may stay in memory, if the memory's share allows as many.
const IDLE_MOST: usize = 4096;

/// Most nodes that may wait for their transactions to become durable: half of the memory share; the
/// other half is for [`super::Known`].
pub(crate) fn nodes_most(memory: &Memory) -> usize {
    to_usize(memory.most(Part::Inodes) / 2 / NODE_COST)
}

/// The nodes, and the inodes that the kernel knows.
pub(crate) struct Nodes {
    /// The order of their numbers is nearly that of their data on the device.
    by_number: RefCell<BTreeMap<Ino, Rc<Node>>>,
    /// Number of nodes at which idle ones are dropped: see [`Nodes::are_many`].
    look_for_idle_at: Cell<usize>,
    pub(crate) known: Known,
    memory: Memory,
}

impl Nodes {
    pub(crate) fn new(memory: &Memory) -> Self {
        let (by_number, look_for_idle_at) = (RefCell::default(), Cell::default());
        Self { by_number, look_for_idle_at, known: Known::new(memory), memory: memory.clone() }
    }

    /// The node of an inode, if there is one.
    pub(crate) fn get(&self, ino: Ino) -> Option<Rc<Node>> {
        self.by_number.borrow().get(&ino).cloned()
    }

    /// Makes the node of an inode that has none.
    pub(crate) fn make(&self, ino: Ino) -> Rc<Node> {
        let node = Rc::new(Node::new(ino, self.memory.hold(Part::Inodes, NODE_COST)));
        self.by_number.borrow_mut().insert(ino, Rc::clone(&node));
        node
    }

    pub(crate) fn remove(&self, ino: Ino) {
        self.by_number.borrow_mut().remove(&ino);
    }

    /// Those of which something waits to be written.
    pub(crate) fn dirty(&self) -> Vec<Rc<Node>> {
        self.by_number.borrow().values().filter(|node| node.is_dirty()).cloned().collect()
    }

    /// Whether there may be many that nobody needs. A look takes time in proportion to all nodes:
    /// so the next look waits until as many have come as the last one left.
    pub(crate) fn are_many(&self) -> bool {
        self.by_number.borrow().len() > self.look_for_idle_at.get()
    }

    /// Drops the nodes that nobody needs, unless `is_wanted` says otherwise.
    pub(crate) fn forget_idle(&self, is_wanted: impl Fn(&Node) -> bool) {
        self.by_number.borrow_mut().retain(|_, node| {
            Rc::strong_count(node) > 1
                || (node.linkable.get() && self.known.is_used(node.ino))
                || node.is_dirty()
                || node.is_unflushed()
                || node.losses.are_unknown()
                || is_wanted(node)
        });
        let idle = IDLE_MOST.min(nodes_most(&self.memory) / 4);
        self.look_for_idle_at.set(next_look(self.by_number.borrow().len(), idle));
    }

    /// Inodes that the kernel should forget, because it knows too many.
    pub(crate) fn to_forget(&self) -> Vec<Ino> {
        let nodes = self.by_number.borrow();
        self.known.too_many(|ino| ino != Ino::ROOT && !nodes.contains_key(&ino))
    }
}

/// The number of nodes at which idle ones are looked for next, if `left` are there now and `idle`
/// idle ones do not matter.
const fn next_look(left: usize, idle: usize) -> usize {
    left + if left > idle { left } else { idle }
}

#[cfg(test)]
mod tests {
    use super::{IDLE_MOST, next_look};

    /// Nodes that come one by one, and stay in use, are looked at a few times each, however many
    /// come.
    #[test]
    fn looks_for_idle_nodes_cost_a_few_each() {
        let (mut look_at, mut looked_at) = (next_look(0, IDLE_MOST), 0);
        for nodes in 1..=1_000_000 {
            if nodes > look_at {
                looked_at += nodes;
                look_at = next_look(nodes, IDLE_MOST);
            }
        }
        assert!(looked_at < 2_000_000, "{looked_at}");
    }
}
