//! Damaged images: whatever they say, nothing panics, hangs, or reaches beyond the device.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use common::{SMALL, SMALL_MIB, World, content, mkfs, mount};
use manylogs_block::{Extent, IoError, Lba, Rng, Sector, to_usize};
use manylogs_ext4::{Change, Error, Ext4, FileKind, Ino, New, SetXattr};
use manylogs_sim::DiskImage;

/// Mutated images that one run of the tests tries; `EXT4_DAMAGES` asks for more.
const IMAGES: u64 = 1500;
/// Steps of tasks after which a mount counts as hanging.
const PATIENCE: u64 = 400_000;

/// An image with directories small and large, sparse and fragmented files, and links.
fn filled(options: &[&str]) -> Option<DiskImage> {
    let world = World::new(1, SMALL_MIB, mkfs(SMALL_MIB, &[SMALL, options].concat())?);
    let done = world.run(async |fs| {
        let dir = fs.create(Ino::ROOT, b"dir", New::plain(FileKind::Directory, 0o755)).await;
        let dir = dir.unwrap().ino;
        for number in 0..200 {
            let name = format!("{number} {}", "n".repeat(100));
            fs.create(dir, name.as_bytes(), New::plain(FileKind::File, 0o644)).await.unwrap();
        }
        let file =
            fs.create(Ino::ROOT, b"sparse", New::plain(FileKind::File, 0o644)).await.unwrap();
        for part in 0..20 {
            fs.write(file.ino, part * 40_000, content(part, 300)).await.unwrap();
        }
        let target = vec![b'l'; 300].into();
        let link = New { target, ..New::plain(FileKind::Symlink, 0o777) };
        fs.create(Ino::ROOT, b"link", link).await.unwrap();
        for (name, len) in [(&b"user.short"[..], 30), (b"user.long", 900), (b"security.x", 2000)] {
            fs.set_xattr(file.ino, name, content(3, len), SetXattr::default()).await.unwrap();
        }
        fs.unmount().await.unwrap();
    });
    done.unwrap();
    Some(world.settled())
}

/// Changes some bytes where something is.
fn damage(image: &mut DiskImage, rng: &mut Rng) {
    for _ in 0..1 + rng.below(4) {
        let lba = loop {
            // Half of all damage is where most structures are.
            let below = if rng.one_in(2) { 400 } else { SMALL_MIB << 11 };
            let lba = rng.below(below);
            if !image.read(Extent::new(lba, 1)).is_zero() {
                break lba;
            }
        };
        let mut bytes = image.read(Extent::new(lba, 1)).to_bytes().unwrap().to_vec();
        for _ in 0..1 + rng.below(3) {
            let at = to_usize(rng.below(512));
            bytes[at] = match rng.below(4) {
                0 => 0,
                1 => 0xFF,
                2 => bytes[at] ^ 1 << rng.below(8),
                _ => u8::try_from(rng.below(256)).unwrap(),
            };
        }
        image.corrupt(Lba(lba), Sector::Bytes(bytes.into()));
    }
}

/// Looks at everything, and changes some of it. Errors are what is expected.
async fn use_all(fs: &Ext4) -> Result<(), Error> {
    let mut open = vec![(Ino::ROOT, 0)];
    let mut looked = 0;
    while let Some((dir, depth)) = open.pop() {
        let mut cookie = 0;
        while let Ok(listed) = fs.list(dir, cookie).await {
            let Some(last) = listed.last() else { break };
            cookie = last.next;
            for entry in listed {
                looked += 1;
                if looked > 1000 {
                    return Ok(());
                }
                local(fs.lookup(dir, &entry.name).await)?;
                let Ok(found) = fs.attributes(entry.ino).await else { continue };
                match found.kind {
                    FileKind::Directory if depth < 4 && !entry.name.starts_with(b".") => {
                        open.push((entry.ino, depth + 1));
                    }
                    FileKind::File => local(fs.read(entry.ino, 0, 100_000).await)?,
                    FileKind::Symlink => local(fs.read_link(entry.ino).await)?,
                    _ => {}
                }
                for name in fs.xattrs(entry.ino).await.unwrap_or_default() {
                    local(fs.xattr(entry.ino, &name).await)?;
                }
                if looked % 5 == 0 && found.kind == FileKind::File {
                    local(fs.write(entry.ino, found.size / 2, vec![1; 5000]).await)?;
                    let size = Some(found.size / 3);
                    local(fs.change(entry.ino, Change { size, ..Change::default() }).await)?;
                    let set =
                        fs.set_xattr(entry.ino, b"user.new", vec![7; 300], SetXattr::default());
                    local(set.await)?;
                    local(fs.unlink(dir, &entry.name).await)?;
                    let new = format!("new {looked}").into_bytes();
                    local(fs.create(dir, &new, New::plain(FileKind::File, 0o600)).await)?;
                }
            }
        }
    }
    local(fs.sync_all().await)
}

/// An error that is a request beyond the device is not expected.
fn local<T>(result: Result<T, Error>) -> Result<(), Error> {
    match result {
        Err(error @ Error::Io(IoError::OutOfRange { .. })) => Err(error),
        _ => Ok(()),
    }
}

#[test]
fn damaged_images_are_refused_or_used_with_errors() {
    let wanted = std::env::var("EXT4_DAMAGES").ok().and_then(|n| n.parse().ok()).unwrap_or(IMAGES);
    let blocks = "^metadata_csum,^uninit_bg,^extent,^64bit";
    let kinds = [&["-O", "^metadata_csum,^uninit_bg"][..], &[], &["-O", blocks]];
    let images: Option<Vec<_>> = kinds.iter().map(|options| filled(options)).collect();
    let Some(images) = images else { return };
    let mut mounted = 0;
    for seed in 0..wanted {
        let mut rng = Rng::new(seed);
        // Without checksums damage gets further.
        let mut image = images[usize::try_from(rng.below(5).saturating_sub(2)).unwrap()].clone();
        damage(&mut image, &mut rng);
        let world = World::new(seed, SMALL_MIB, image);
        let (ended, ok) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(false)));
        let wrong = Rc::new(RefCell::new(None));
        let mounting = mount(Rc::new(world.disk.clone()), world.runtime());
        let notes = (Rc::clone(&ended), Rc::clone(&ok), Rc::clone(&wrong));
        world.sim.handle(world.user).spawn(async move {
            let result = match mounting.await {
                Ok(fs) => {
                    notes.1.set(true);
                    let used = use_all(&fs).await;
                    used.and(local(fs.unmount().await))
                }
                Err(error) => local::<()>(Err(error)),
            };
            *notes.2.borrow_mut() = result.err();
            notes.0.set(true);
        });
        let mut steps = 0;
        world.sim.run_until(|| {
            steps += 1;
            ended.get() || steps > PATIENCE
        });
        assert!(ended.get(), "seed {seed}: hangs after {steps} steps");
        assert_eq!(*wrong.borrow(), None, "seed {seed}");
        mounted += u64::from(ok.get());
    }
    println!("{wanted} damaged images, {mounted} could be mounted");
}
