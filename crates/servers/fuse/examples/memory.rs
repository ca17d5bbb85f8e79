//! A file system with its tree in memory: what FUSE itself costs, for `benches/mlfs.py`.
//!
//! `cargo run --release -p manylogs-fuse --example memory -- DIRECTORY`
//!
//! It serves DIRECTORY until that is unmounted. It agrees with the kernel upon the same protocol
//! flags as MLFS does, and answers from the thread that reads requests. Files and directories only;
//! what benchmarks do not ask for is not implemented.

use std::cell::{RefCell, RefMut};
use std::collections::{BTreeMap, HashMap};
use std::error::Error;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use manylogs_fuse::request::{Create, MakeDirectory, MakeNode, Open, Read, SetAttributes, Write};
use manylogs_fuse::{
    Answer, Attributes, Context, Created, Device, Entry, Errno, FileHandle, Filesystem, InitFlags,
    Known, MountFlags, MountOptions, Names, NodeId, NodeKind, Opened, OpenedFlags, Reply, Source,
    Superblock, Time, Wanted, Written,
};

/// The protocol flags that MLFS wants, except access control lists.
const WANTED: Wanted = Wanted {
    required: InitFlags::DONT_MASK.union(InitFlags::HANDLE_KILLPRIV_V2),
    desired: InitFlags::ASYNC_READ
        .union(InitFlags::ASYNC_DIO)
        .union(InitFlags::PARALLEL_DIROPS)
        .union(InitFlags::SETXATTR_EXT),
    max_write: 1 << 20,
    max_background: 16,
    congestion_threshold: 12,
};
const OPENED: Opened = Opened { handle: FileHandle(0), flags: OpenedFlags::KEEP_CACHE };
const NAMES_VALID: Duration = Duration::from_secs(3600);
const ATTRIBUTES_VALID: Duration = Duration::from_secs(1);

/// An inode.
struct Node {
    attributes: Attributes,
    content: Vec<u8>,
    /// Of a directory: inode numbers by name.
    names: BTreeMap<Vec<u8>, u64>,
    /// How often the kernel was told of the inode, less the times that it has forgotten.
    known: u64,
}

struct Tree {
    nodes: HashMap<u64, Node>,
    next: u64,
}

struct Memory(RefCell<Tree>);

impl Node {
    fn new(number: u64, kind: NodeKind, permissions: u16, context: Context) -> Self {
        let now = Time::of(SystemTime::now());
        let attributes = Attributes {
            node: NodeId(number),
            number,
            size: 0,
            sectors: 0,
            accessed: now,
            modified: now,
            changed: now,
            kind,
            permissions,
            links: if kind == NodeKind::Directory { 2 } else { 1 },
            uid: context.uid,
            gid: context.gid,
            device: Device::default(),
            block_bytes: 4096,
        };
        Self { attributes, content: Vec::new(), names: BTreeMap::new(), known: 0 }
    }

    /// The answer that names the inode to the kernel, which counts it once more from now on.
    fn tell(&mut self) -> Entry {
        self.known += 1;
        Entry {
            attributes: self.attributes,
            generation: 0,
            name_valid: NAMES_VALID,
            attributes_valid: ATTRIBUTES_VALID,
        }
    }

    fn resize(&mut self, bytes: usize) {
        self.content.resize(bytes, 0);
        self.attributes.size = bytes as u64;
        self.attributes.sectors = (bytes as u64).div_ceil(512);
    }

    fn touch(&mut self) {
        self.attributes.modified = Time::of(SystemTime::now());
        self.attributes.changed = self.attributes.modified;
    }
}

impl Tree {
    fn node(&mut self, node: NodeId) -> Result<&mut Node, Errno> {
        self.nodes.get_mut(&node.0).ok_or(Errno::NOENT)
    }

    fn find(&mut self, dir: NodeId, name: &[u8]) -> Result<&mut Node, Errno> {
        let number = *self.node(dir)?.names.get(name).ok_or(Errno::NOENT)?;
        self.node(NodeId(number))
    }

    fn create(
        &mut self,
        context: Context,
        name: &[u8],
        kind: NodeKind,
        permissions: u16,
    ) -> Result<Entry, Errno> {
        let number = self.next;
        let dir = self.node(context.node)?;
        if dir.names.contains_key(name) {
            return Err(Errno::EXIST);
        }
        dir.names.insert(name.to_vec(), number);
        dir.attributes.links += u32::from(kind == NodeKind::Directory);
        dir.touch();
        self.next += 1;
        let node = Node::new(number, kind, permissions, context);
        Ok(self.nodes.entry(number).insert_entry(node).into_mut().tell())
    }

    fn remove(&mut self, dir: NodeId, name: &[u8], kind: NodeKind) -> Result<(), Errno> {
        let found = self.find(dir, name)?;
        if found.attributes.kind != kind {
            return Err(if kind == NodeKind::File { Errno::ISDIR } else { Errno::NOTDIR });
        }
        if !found.names.is_empty() {
            return Err(Errno::NOTEMPTY);
        }
        found.attributes.links = 0;
        found.touch();
        let number = found.attributes.node;
        let dir = self.node(dir)?;
        dir.names.remove(name);
        dir.attributes.links -= u32::from(kind == NodeKind::Directory);
        dir.touch();
        self.drop_unused(number);
        Ok(())
    }

    fn drop_unused(&mut self, node: NodeId) {
        let unused = |node: &Node| node.attributes.links == 0 && node.known == 0;
        if self.nodes.get(&node.0).is_some_and(unused) {
            self.nodes.remove(&node.0);
        }
    }

    fn list(&mut self, dir: NodeId, read: Read) -> Result<Names, Errno> {
        let names = &self.node(dir)?.names;
        let mut listed = Names::with_room(read.size);
        // Names are listed in the order of their inodes' numbers, which is how `offset` finds a
        // place again.
        let mut rest: Vec<_> = names.iter().filter(|(_, number)| **number > read.offset).collect();
        rest.sort_unstable_by_key(|(_, number)| **number);
        for (name, number) in rest {
            if !listed.push(*number, *number, NodeKind::File, name) {
                break;
            }
        }
        Ok(listed)
    }

    fn write(&mut self, node: NodeId, write: Write<'_>) -> Result<Written, Errno> {
        let node = self.node(node)?;
        let from = usize::try_from(write.offset).map_err(|_| Errno::FBIG)?;
        let end = from.checked_add(write.data.len()).ok_or(Errno::FBIG)?;
        if end > node.content.len() {
            node.resize(end);
        }
        node.content[from..end].copy_from_slice(write.data);
        node.touch();
        Ok(Written(u32::try_from(write.data.len()).map_err(|_| Errno::FBIG)?))
    }

    fn change(&mut self, node: NodeId, change: SetAttributes) -> Result<Known, Errno> {
        let node = self.node(node)?;
        if let Some(bytes) = change.size {
            node.resize(usize::try_from(bytes).map_err(|_| Errno::FBIG)?);
            node.touch();
        }
        let now = &mut node.attributes;
        now.permissions = change.permissions.unwrap_or(now.permissions);
        now.uid = change.uid.unwrap_or(now.uid);
        now.gid = change.gid.unwrap_or(now.gid);
        Ok(Known { attributes: *now, valid: ATTRIBUTES_VALID })
    }
}

impl Memory {
    fn new() -> Self {
        let root = Context { node: NodeId::ROOT, uid: 0, gid: 0, pid: 0 };
        let number = NodeId::ROOT.0;
        let node = Node::new(number, NodeKind::Directory, 0o755, root);
        Self(RefCell::new(Tree { nodes: HashMap::from([(number, node)]), next: number + 1 }))
    }

    fn tree(&self) -> RefMut<'_, Tree> {
        self.0.borrow_mut()
    }
}

impl Filesystem for Memory {
    fn lookup(&self, context: Context, name: &[u8], reply: Reply<Entry>) {
        answer(reply, self.tree().find(context.node, name).map(Node::tell));
    }

    fn forget(&self, node: NodeId, times: u64) {
        let mut tree = self.tree();
        if let Ok(forgotten) = tree.node(node) {
            forgotten.known = forgotten.known.saturating_sub(times);
        }
        tree.drop_unused(node);
    }

    fn attributes(&self, context: Context, reply: Reply<Known>) {
        let known =
            |node: &mut Node| Known { attributes: node.attributes, valid: ATTRIBUTES_VALID };
        answer(reply, self.tree().node(context.node).map(known));
    }

    fn set_attributes(&self, context: Context, change: SetAttributes, reply: Reply<Known>) {
        answer(reply, self.tree().change(context.node, change));
    }

    fn make_node(&self, context: Context, new: MakeNode<'_>, reply: Reply<Entry>) {
        let permissions = new.permissions & !new.umask;
        let made = self.tree().create(context, new.name, NodeKind::File, permissions);
        answer(reply, made);
    }

    fn make_directory(&self, context: Context, new: MakeDirectory<'_>, reply: Reply<Entry>) {
        let permissions = new.permissions & !new.umask;
        let made = self.tree().create(context, new.name, NodeKind::Directory, permissions);
        answer(reply, made);
    }

    fn create(&self, context: Context, new: Create<'_>, reply: Reply<Created>) {
        let permissions = new.permissions & !new.umask;
        let made = self.tree().create(context, new.name, NodeKind::File, permissions);
        let created = made.map(|entry| Created { entry, opened: OPENED });
        answer(reply, created);
    }

    fn unlink(&self, context: Context, name: &[u8], reply: Reply<()>) {
        let removed = self.tree().remove(context.node, name, NodeKind::File);
        answer(reply, removed);
    }

    fn remove_directory(&self, context: Context, name: &[u8], reply: Reply<()>) {
        let removed = self.tree().remove(context.node, name, NodeKind::Directory);
        answer(reply, removed);
    }

    fn open(&self, _: Context, _: Open, reply: Reply<Opened>) {
        reply.send(&OPENED);
    }

    fn read(&self, context: Context, read: Read, reply: Reply<[u8]>) {
        let mut tree = self.tree();
        match tree.node(context.node) {
            Ok(node) => {
                let bytes = node.content.len();
                let from = usize::try_from(read.offset).unwrap_or(bytes).min(bytes);
                reply.send(&node.content[from..bytes.min(from + read.size as usize)]);
            }
            Err(errno) => reply.error(errno),
        }
    }

    fn write(&self, context: Context, write: Write<'_>, reply: Reply<Written>) {
        answer(reply, self.tree().write(context.node, write));
    }

    fn read_directory(&self, context: Context, read: Read, reply: Reply<Names>) {
        answer(reply, self.tree().list(context.node, read));
    }
}

fn answer<A: Answer>(reply: Reply<A>, result: Result<A, Errno>) {
    reply.send_result(result.as_ref().map_err(|errno| *errno));
}

fn main() -> Result<(), Box<dyn Error>> {
    let target = PathBuf::from(std::env::args_os().nth(1).ok_or("usage: memory DIRECTORY")?);
    let options = MountOptions {
        source: Source::Named("memory".to_owned()),
        subtype: Some("memory"),
        allow_other: true,
        default_permissions: true,
        flags: MountFlags::empty(),
    };
    let session = Superblock::create(&target, &options)?.attach(&WANTED)?;
    drop(session.run(&Memory::new())?);
    Ok(())
}
