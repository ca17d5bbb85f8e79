//! The account of memory: heavy load stays within it, waiting tasks go on, and all memory is given
//! back.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::common::{Judged, World, content, mkfs};
use manylogs_block::{
    BlockDevice, Capabilities, Completion, Handle, Nanos, Request, Signal, completion,
};
use manylogs_ext4::{Ext4, FileKind, Ino, Memory, Mode, New, Options, Part, PartUse, SetXattr};
use manylogs_sim::CrashDisk;
use manylogs_torture::ext4::options;

const MIB: u64 = 1 << 20;
const LEN: usize = 128 << 10;

/// A disk whose writes and flushes wait until it is opened.
struct Gate {
    disk: CrashDisk,
    runtime: Handle,
    open: Cell<bool>,
    opened: Signal,
}

impl Gate {
    fn new(world: &World) -> Rc<Self> {
        let (disk, runtime) = (world.disk.clone(), world.runtime());
        Rc::new(Self { disk, runtime, open: Cell::new(true), opened: Signal::default() })
    }

    fn set(&self, open: bool) {
        self.open.set(open);
        self.opened.notify();
    }
}

impl BlockDevice for Gate {
    fn capabilities(&self) -> Capabilities {
        self.disk.capabilities()
    }

    fn submit(&self, request: Request) -> Completion {
        if self.open.get() || matches!(request, Request::Read { .. }) {
            return self.disk.submit(request);
        }
        let (opened, disk) = (self.opened.wait(), self.disk.clone());
        let (completer, later) = completion();
        self.runtime.spawn(async move {
            opened.await;
            completer.complete(disk.submit(request).await);
        });
        later
    }
}

fn small(runtime: &Handle) -> (Options, Memory) {
    let memory = Memory::new(Memory::LEAST);
    (Options { memory: memory.clone(), ..options(runtime.clone()) }, memory)
}

async fn file(fs: &Ext4, name: &str) -> Ino {
    fs.create(Ino::ROOT, name.as_bytes(), New::plain(FileKind::File, 0o644)).await.unwrap().ino
}

/// Parts that used more than their share.
fn excess(memory: &Memory) -> Vec<PartUse> {
    memory.parts().into_iter().filter(|part| part.peak > part.most).collect()
}

fn all_came_back(memory: &Memory) {
    assert!(memory.parts().iter().all(|part| part.used == 0), "{:?}", memory.parts());
}

/// Runs many writers while the device does not answer. Returns how many bytes they wrote into
/// memory, and the account. Other requests go on meanwhile, and all writers do when the device
/// answers.
fn stalled() -> Option<(u64, Memory)> {
    const WRITERS: u64 = 500;
    let image = mkfs(160, &[])?;
    let world = World::new(1, 160, image);
    let (gate, runtime) = (Gate::new(&world), world.runtime());
    let (options, memory) = small(&runtime);
    let (account, written) = (memory.clone(), Rc::new(Cell::new(0)));
    let stalled = world.sim.block_on(world.user, async move {
        let fs = Ext4::mount(Rc::clone(&gate) as Rc<_>, runtime.clone(), options).await.unwrap();
        let (mut files, ended) = (Vec::new(), Signal::default());
        for number in 0..=WRITERS {
            files.push(file(&fs, &number.to_string()).await);
        }
        fs.sync_all().await.unwrap();
        gate.set(false);
        let left = Rc::new(Cell::new(WRITERS));
        for (number, ino) in (0..WRITERS).zip(files.clone()) {
            let (fs, written, left) = (fs.clone(), Rc::clone(&written), Rc::clone(&left));
            let ended = ended.clone();
            runtime.spawn(async move {
                fs.write(ino, 0, content(number, LEN)).await.unwrap();
                written.set(written.get() + LEN as u64);
                fs.sync(ino).await.unwrap();
                left.set(left.get() - 1);
                ended.notify();
            });
        }
        runtime.sleep(Nanos::from_secs(60)).await;
        let stalled = written.get();
        // Requests that need no device go on.
        assert_eq!(fs.lookup(Ino::ROOT, b"7").await.unwrap().ino, files[7]);
        fs.open(files[8]);
        fs.close(files[8], 1).await.unwrap();
        gate.set(true);
        // A sync waits only for its own file's content, not for the whole queue.
        let last = files.pop().unwrap();
        fs.write(last, 0, content(9, 4096)).await.unwrap();
        fs.sync(last).await.unwrap();
        while left.get() > 0 {
            ended.wait().await;
        }
        for number in [0, 7, WRITERS - 1] {
            let ino = fs.lookup(Ino::ROOT, number.to_string().as_bytes()).await.unwrap().ino;
            assert!(fs.read(ino, 0, LEN).await.unwrap() == content(number, LEN));
        }
        fs.sync_all().await.unwrap();
        let parts = [Part::Pages, Part::Writing, Part::Requests];
        assert_eq!(parts.map(|part| fs.memory().used(part)), [0; 3], "nothing is under way");
        fs.unmount().await.unwrap();
        stalled
    });
    world.check();
    Some((stalled, account))
}

#[test]
fn writers_wait_for_memory_while_the_device_stalls_and_all_go_on_after_it() {
    let Some((written, memory)) = stalled() else { return };
    assert!(written > memory.most(Part::Pages) / 2, "{written}: memory is used");
    assert!(written <= memory.most(Part::Pages), "{written}");
    assert_eq!(excess(&memory), []);
    all_came_back(&memory);
}

#[cfg(feature = "plant")]
#[test]
fn what_is_not_counted_is_noticed() {
    use manylogs_plant::{Bug, plant};
    for bug in [Bug::MemoryUnbounded, Bug::MemoryPagesUncounted] {
        plant(Some(bug));
        let Some((written, memory)) = stalled() else { return };
        plant(None);
        assert!(written > memory.most(Part::Pages), "{bug:?} is not noticed");
    }
}

/// Many files, inodes and attributes, in two modes: no part needs more than its share.
#[test]
fn floods_stay_within_the_shares_in_each_mode() {
    let Some(image) = mkfs(160, &["-J", "size=64"]) else { return };
    for mode in [Mode::Ordered, Mode::Data] {
        let world = World::new(2, 160, image.clone());
        let (disk, runtime) = (Rc::new(world.disk.clone()), world.runtime());
        let (options, memory) = small(&runtime);
        let seen = Rc::new(RefCell::new(Vec::new()));
        let kept = Rc::clone(&seen);
        world.sim.block_on(world.user, async move {
            let fs = Ext4::mount_in(mode, disk, runtime.clone(), options).await.unwrap();
            // A stream that is longer than the memory shares that it passes through.
            let stream = file(&fs, "stream").await;
            for mib in 0..64 {
                fs.write(stream, mib * MIB, content(mib, 1 << 20)).await.unwrap();
            }
            // More inodes than a transaction may change, and attributes in separate blocks.
            for number in 0..6000_u32 {
                let ino = file(&fs, &format!("a name of some length, number {number}")).await;
                fs.open(ino);
                if number % 4 == 0 {
                    let (value, how) = (content(number.into(), 2000), SetXattr::default());
                    fs.set_xattr(ino, b"user.large", value, how).await.unwrap();
                }
            }
            // Lists many names, and overwrites content.
            let mut from = 0;
            while let Some(last) = fs.list(Ino::ROOT, from).await.unwrap().last() {
                from = last.next;
            }
            for page in (0..16_384).step_by(7) {
                fs.write(stream, page * 4096, content(page, 4096)).await.unwrap();
                if page % 50 == 0 {
                    fs.sync(stream).await.unwrap();
                }
            }
            *kept.borrow_mut() = fs.memory().parts().to_vec();
            fs.unmount().await.unwrap();
        });
        world.check();
        assert_eq!(excess(&memory), [], "{mode:?}");
        println!("{mode:?}: {:?}", seen.borrow());
        all_came_back(&memory);
    }
}
