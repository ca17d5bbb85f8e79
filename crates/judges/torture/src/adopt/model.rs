//! The content of files: the one from the beginning, and blocks that were written since.

use std::collections::{BTreeMap, HashMap};

use manylogs_block::{Extent, Rng, Sector};
use manylogs_ext4::{BLOCK_BYTES, Error, Ext4, FileKind, Ino, New};
use manylogs_sim::DiskImage;

use crate::ext4::{content, names};

/// A file that comes and goes, with any content.
pub(super) const SPARE: &[u8] = b"spare";

/// A block of a file: the number of the file, and that of the block.
type Place = (usize, usize);

/// See the module. Files have whole blocks.
#[derive(Clone, Debug)]
pub(super) struct Model {
    /// The blocks of each file; each begins with a number that no other block has.
    files: Vec<Vec<Vec<u8>>>,
    /// The homes of the blocks on the disk.
    homes: Vec<(Place, u64)>,
    /// The newest durable content of each block that was written since.
    durable: BTreeMap<Place, Vec<u8>>,
    /// Contents that were written after the durable one, and may be lost.
    maybe: BTreeMap<Place, Vec<Vec<u8>>>,
    next: u64,
}

/// A block that a history writes.
pub(super) struct Written {
    /// Number to pass to [`Model::acknowledge`].
    pub(super) chosen: usize,
    /// The file's name.
    pub(super) file: Vec<u8>,
    /// The block's number in the file.
    pub(super) at: usize,
    /// The block's home on the disk.
    pub(super) home: u64,
    /// The content to write.
    pub(super) block: Vec<u8>,
}

fn name(file: usize) -> Vec<u8> {
    format!("file {file}").into_bytes()
}

impl Model {
    /// Random files, with at most `blocks` blocks together.
    pub(super) fn new(rng: &mut Rng, blocks: u64) -> Self {
        let (mut files, mut left) = (Vec::new(), blocks);
        while left > 0 {
            let len = 1 + rng.below(left.min(40));
            left -= len;
            files.push((0..len).map(|_| content(rng.next_u64(), BLOCK_BYTES)).collect());
        }
        let (durable, maybe, next) = (BTreeMap::new(), BTreeMap::new(), rng.next_u64());
        Self { files, homes: Vec::new(), durable, maybe, next }
    }

    /// Creates the files, and others between them that are removed again, so that the free space is
    /// in pieces.
    pub(super) async fn create(&self, fs: &Ext4) -> Result<(), Error> {
        let spare = |number| format!("spare {number}").into_bytes();
        for (number, blocks) in self.files.iter().enumerate() {
            let new =
                fs.create(Ino::ROOT, &name(number), New::plain(FileKind::File, 0o644)).await?;
            fs.write(new.ino, 0, blocks.concat()).await?;
            fs.sync(new.ino).await?;
            if number % 3 == 0 {
                let new =
                    fs.create(Ino::ROOT, &spare(number), New::plain(FileKind::File, 0o600)).await?;
                fs.write(new.ino, 0, content(number as u64, 5 * BLOCK_BYTES)).await?;
                fs.sync(new.ino).await?;
            }
        }
        for number in (0..self.files.len()).step_by(3) {
            fs.unlink(Ino::ROOT, &spare(number)).await?;
        }
        Ok(())
    }

    /// Finds the homes of the blocks.
    pub(super) fn find_homes(&mut self, image: &DiskImage, blocks: u64) {
        let mut known: HashMap<&[u8], Place> = HashMap::new();
        for (file, content) in self.files.iter().enumerate() {
            known.extend((0..).zip(content).map(|(at, block)| (&block[..512], (file, at))));
        }
        let found = (0..blocks).filter_map(|block| {
            let first = image.read(Extent::new(block * 8, 1)).sectors().next()??;
            let Sector::Bytes(bytes) = first else { return None };
            Some((*known.get(&bytes[..])?, block))
        });
        self.homes = found.collect();
    }

    /// Draws a block to write, with its home and its new content. A crash may show that from now
    /// on.
    pub(super) fn write(&mut self, rng: &mut Rng) -> Option<Written> {
        let chosen = manylogs_block::to_usize(rng.below(self.homes.len().max(1) as u64));
        let (place, home) = *self.homes.get(chosen)?;
        self.next = self.next.wrapping_add(1);
        let new = content(self.next, BLOCK_BYTES);
        self.maybe.entry(place).or_default().push(new.clone());
        Some(Written { chosen, file: name(place.0), at: place.1, home, block: new })
    }

    /// Records that the last content written to the block is durable.
    pub(super) fn acknowledge(&mut self, chosen: usize) {
        let (place, _) = self.homes[chosen];
        let newest = self.maybe.remove(&place).and_then(|mut all| all.pop());
        if let Some(newest) = newest {
            self.durable.insert(place, newest);
        }
    }

    /// Checks that all files have a content that is allowed, and that there is nothing else but
    /// what belongs to an ext4 and, if allowed, a log file.
    pub(super) async fn check(&self, fs: &Ext4, may_have_logs: bool) -> Result<(), String> {
        let told = |error: Error| error.to_string();
        let mut found: BTreeMap<Vec<u8>, Ino> =
            names(fs, Ino::ROOT).await.map_err(told)?.into_iter().collect();
        found.remove(&b"lost+found"[..]);
        found.remove(SPARE);
        if found.remove(manylogs_ext4::LOG_FILE_NAME).is_some() && !may_have_logs {
            return Err("a log file is left".to_owned());
        }
        for (number, blocks) in self.files.iter().enumerate() {
            let ino = found.remove(&name(number)).ok_or(format!("file {number} is missing"))?;
            let held = fs.read(ino, 0, (blocks.len() + 1) * BLOCK_BYTES).await.map_err(told)?;
            if held.len() != blocks.len() * BLOCK_BYTES {
                return Err(format!("file {number} has another length"));
            }
            for (at, held) in held.chunks(BLOCK_BYTES).enumerate() {
                if !self.may_hold((number, at), held) {
                    return Err(format!("file {number}, block {at}: another content"));
                }
            }
        }
        match found.keys().next() {
            None => Ok(()),
            Some(other) => Err(format!("{}: nobody made it", String::from_utf8_lossy(other))),
        }
    }

    fn may_hold(&self, place: Place, held: &[u8]) -> bool {
        let oldest = self.durable.get(&place).unwrap_or(&self.files[place.0][place.1]);
        oldest == held
            || self.maybe.get(&place).is_some_and(|all| all.iter().any(|new| new == held))
    }
}
